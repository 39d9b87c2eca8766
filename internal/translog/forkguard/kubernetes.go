package forkguard

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	account     = "/var/run/secrets/kubernetes.io/serviceaccount"
	callTimeout = 5 * time.Second
	maxObject   = 2 << 20 // bytes of an answer; a ConfigMap has at most 1 MiB of data
)

var objectName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// kubernetes keeps the record in a ConfigMap, which changes only by its resourceVersion. The Helm chart
// creates it, so the pod's Role needs only get and update on this one ConfigMap. The uid is its identity:
// the API server gives each new object another one.
type kubernetes struct {
	url, name         string
	tokenFile, caFile string
	ping              time.Duration // HTTP/2: the longest silence, and the longest wait for a pong

	mu     sync.Mutex   // guards client and ca
	client *http.Client // trusts ca
	ca     []byte       // the content of caFile when client was made
}

func openKubernetes(rest string) (*kubernetes, error) {
	namespace, name, _ := strings.Cut(rest, "/")
	if !objectName.MatchString(namespace) || !objectName.MatchString(name) {
		return nil, fmt.Errorf("the fork guard kubernetes://%s does not name a ConfigMap: write kubernetes://NAMESPACE/NAME", rest)
	}
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set, so this process is not in a pod: use the fork guard file://PATH instead of kubernetes://")
	}
	return &kubernetes{
		url:       "https://" + net.JoinHostPort(host, port) + "/api/v1/namespaces/" + namespace + "/configmaps/" + name,
		name:      namespace + "/" + name,
		tokenFile: account + "/token",
		caFile:    account + "/ca.crt",
		ping:      callTimeout,
	}, nil
}

func (k *kubernetes) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		k.client.CloseIdleConnections()
	}
	return nil
}

func (k *kubernetes) Load(ctx context.Context) (Record, error) {
	body, err := k.call(ctx, http.MethodGet, nil)
	if err != nil {
		return Record{}, err
	}
	var object struct {
		Metadata struct{ ResourceVersion, UID string }
		Data     map[string]string
	}
	if err := json.Unmarshal(body, &object); err != nil || object.Metadata.ResourceVersion == "" || object.Metadata.UID == "" {
		return Record{}, fmt.Errorf("the API server's answer for the fork guard %s is not a ConfigMap: check that KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are the host and port of the API server", k.name)
	}
	size, root := object.Data["size"], object.Data["root"]
	if size == "" && root == "" {
		return Record{Guard: object.Metadata.UID, state: string(body)}, nil
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return Record{}, fmt.Errorf("the record of the fork guard %s has data.size %.40q, which is not a number: %s", k.name, size, restoreRecord)
	}
	record := Record{Size: n, Root: root, Guard: object.Metadata.UID, state: string(body)}
	return record, record.check()
}

// Store sends back the whole loaded ConfigMap, with its resourceVersion and the new record.
func (k *kubernetes) Store(ctx context.Context, loaded, next Record) error {
	var object map[string]any
	if err := json.Unmarshal([]byte(loaded.state), &object); err != nil {
		return fmt.Errorf("the loaded ConfigMap of the fork guard %s is not a JSON object: %w", k.name, err)
	}
	data, _ := object["data"].(map[string]any)
	if data == nil {
		data = map[string]any{}
		object["data"] = data
	}
	data["size"], data["root"] = strconv.FormatInt(next.Size, 10), next.Root
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = k.call(ctx, http.MethodPut, body)
	return err
}

func (k *kubernetes) call(ctx context.Context, method string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token, err := os.ReadFile(k.tokenFile) // read for each call, because Kubernetes renews the token about every hour
	if err != nil {
		return nil, fmt.Errorf("cannot read the pod's token for the fork guard (%w): set `automountServiceAccountToken: true` in the pod's spec", err)
	}
	client, err := k.currentClient()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, k.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot call the API server for the fork guard: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxObject))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the API server's answer for the fork guard: %w", err)
	case response.StatusCode == http.StatusOK:
		return answer, nil
	case response.StatusCode == http.StatusConflict:
		return nil, ErrMoved
	case response.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("the fork guard's ConfigMap %s does not exist: make it with helm upgrade, then give the guard its record (runbook fork-guard.md)", k.name)
	case response.StatusCode == http.StatusUnauthorized, response.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("the API server refuses access to the fork guard (status %d): give the pod's service account a Role with get and update on the ConfigMap %s", response.StatusCode, k.name)
	}
	return nil, fmt.Errorf("the API server answered status %d to a %s of the fork guard's ConfigMap %s", response.StatusCode, method, k.name)
}

func (k *kubernetes) currentClient() (*http.Client, error) {
	ca, err := os.ReadFile(k.caFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's certificate authority for the fork guard: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil && bytes.Equal(ca, k.ca) {
		return k.client, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("the fork guard cannot verify the API server, because the certificate authority's file %s has no PEM certificate: mount the service account's `ca.crt` at this path", k.caFile)
	}
	if k.client != nil {
		k.client.CloseIdleConnections()
	}
	k.ca = ca
	k.client = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: callTimeout,
			IdleConnTimeout:     time.Minute,
			ForceAttemptHTTP2:   true,
			// Without pings, a connection to an unreachable server stays in use for about 15 minutes.
			HTTP2: &http.HTTP2Config{SendPingTimeout: k.ping, PingTimeout: k.ping},
		},
		// Only the API server may get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return k.client, nil
}
