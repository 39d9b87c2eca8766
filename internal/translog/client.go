package translog

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/singleflight"

	"github.com/fairpact/fairpact/internal/platform/batch"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/signing"
)

// Client talks to a log-server. It is safe for concurrent use. The caller must verify the
// signature of each head, and the path of each Inclusion (certificate.VerifyInclusion).
type Client struct {
	appendURL, readURL string
	secret             atomic.Value // string
	http               *http.Client
	proofs             *batch.Group[provedLeaf, proved]
	certified          certified
	heads              *checks // nil until Trust sets it

	// Check, if set, checks each HTTP answer before its body is read. After an error, the method returns
	// ErrUnavailable. Set Check before the first method call.
	Check func(*http.Response) error
}

const (
	clientTimeout = timelimits.Append + 10*time.Second // the server gives up earlier and answers with an error
	readTimeout   = 5 * time.Second                    // for heads and proofs, which normally take milliseconds
	maxAnswer     = 1 << 20                            // bytes
)

// NewClient returns a client for the addresses of the append port and the read port, such as
// http://log-server:8091. Only Append and Inclusion need appendURL and secret.
func NewClient(appendURL, readURL, secret string) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil                                           // HTTP_PROXY is for external calls; only log-server may see the secret
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 1024 // a closed one must be dialed again
	c := &Client{
		appendURL: strings.TrimRight(appendURL, "/"),
		readURL:   strings.TrimRight(readURL, "/"),
		http: &http.Client{
			Transport: transport,
			Timeout:   clientTimeout,
			// A log-server sends no redirects. Following a redirect could leak the secret.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.SetSecret(secret)
	c.proofs = newGroup(proofRequests, maxProofs, c.proofsOf)
	return c
}

// SetSecret replaces the append secret for the calls that begin from now on.
func (c *Client) SetSecret(secret string) { c.secret.Store(secret) }

// CheckURL returns an error if the base address is not a usable URL. The error shows no password.
func CheckURL(address string) error {
	if strings.Contains(address, "@") {
		return errors.New("the address of the log-server has a user name, which log-server does not use: write http://HOST:PORT")
	}
	u, err := url.Parse(address)
	good := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && !strings.HasSuffix(u.Host, ":") &&
		u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
	if good && u.Port() != "" {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		good = err == nil && port > 0
	}
	if !good {
		return fmt.Errorf("%q is not the address of a log-server: write http://HOST:PORT", address)
	}
	return nil
}

// Append returns the leaf index once a published head covers the leaf. After ErrUnavailable the
// caller MUST repeat the call, because the entry may be in the log already.
func (c *Client) Append(ctx context.Context, entry [32]byte, signature string, tag Tag) (int64, error) {
	var appended struct {
		LeafIndex *int64 `json:"leaf_index"`
		TreeSize  *int64 `json:"tree_size"`
	}
	request := appendRequest{hex.EncodeToString(entry[:]), signature, hex.EncodeToString(tag[:])}
	if err := c.post(ctx, appendPath, request, &appended); err != nil {
		return 0, err
	}
	if appended.LeafIndex == nil || appended.TreeSize == nil || *appended.LeafIndex < 0 || *appended.LeafIndex >= *appended.TreeSize {
		return 0, notLogServer(errors.New("leaf_index or tree_size is missing, or leaf_index is not from 0 to tree_size-1"))
	}
	return *appended.LeafIndex, nil
}

// TreeHead returns the newest published head.
func (c *Client) TreeHead(ctx context.Context) (TreeHead, error) {
	return c.treeHead(ctx, nil)
}

// TreeHeadAt returns the published head of a size, or ErrNotFound.
func (c *Client) TreeHeadAt(ctx context.Context, size int64) (TreeHead, error) {
	return c.treeHead(ctx, url.Values{"tree_size": {strconv.FormatInt(size, 10)}})
}

func (c *Client) treeHead(ctx context.Context, query url.Values) (TreeHead, error) {
	var head TreeHead
	err := c.get(ctx, "/v1/log/tree-head", query, &head)
	if err == nil && head.Signature == "" {
		err = notLogServer(errors.New("the head has no signature"))
	}
	return head, err
}

// Inclusion returns the proof of a leaf under the newest published head; see Log.Inclusion for errors.
// Concurrent calls share a request.
func (c *Client) Inclusion(ctx context.Context, entry [32]byte, leafIndex int64) (Inclusion, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	got, err := c.proofs.Do(ctx, provedLeaf{leafIndex, hex.EncodeToString(entry[:])})
	switch {
	case err != nil:
		return Inclusion{}, err
	case got.Error != "":
		return Inclusion{}, fromText(got.Error)
	case got.Inclusion == nil:
		return Inclusion{}, notLogServer(errors.New("the answer has neither a proof nor an error"))
	}
	return *got.Inclusion, nil
}

func (c *Client) proofsOf(ctx context.Context, leaves []provedLeaf) ([]proved, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var all []proved
	err := c.post(ctx, proofsPath, leaves, &all)
	if err == nil && len(all) != len(leaves) {
		err = notLogServer(fmt.Errorf("the answer has %d proofs for %d leaves", len(all), len(leaves)))
	}
	return all, err
}

// TLogProof returns the .tlog-proof of a leaf, or nil if no checkpoint covers the leaf yet. It verifies the
// inclusion proof but not the signatures. See Log.TLogProof for `first`.
func (c *Client) TLogProof(ctx context.Context, entry [32]byte, leafIndex int64, first bool) ([]byte, error) {
	query := url.Values{"leaf_index": {strconv.FormatInt(leafIndex, 10)}, "entry": {hex.EncodeToString(entry[:])}}
	if first {
		query.Set("first", "1")
	}
	var text []byte
	err := c.get(ctx, "/v1/log/tlog-proof", query, &text)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	proof, err := checkpoint.ParseProof(text)
	if err != nil {
		return nil, notLogServer(err)
	}
	of, err := checkpoint.ParseNote(string(proof.Note))
	if err == nil && proof.Index != leafIndex {
		err = fmt.Errorf("the proof is for leaf %d, not for leaf %d", proof.Index, leafIndex)
	}
	if err == nil {
		err = proof.VerifyInclusion(entry[:], of)
	}
	if err != nil {
		return nil, notLogServer(err)
	}
	return text, nil
}

func (c *Client) post(ctx context.Context, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.appendURL+path, bytes.NewReader(text))
	if err != nil {
		return unavailable(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+c.secret.Load().(string))
	// Lets the transport repeat the request if a kept-alive connection was closed. The header is not sent.
	request.Header["Idempotency-Key"] = []string{}
	return c.do(request, into)
}

func (c *Client) get(ctx context.Context, path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	address := c.readURL + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return unavailable(err)
	}
	return c.do(request, into)
}

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/translog")

func (c *Client) do(request *http.Request, into any) error {
	budget.From(request.Context()).Rest()
	ctx, span := tracer.Start(request.Context(), request.Method+" "+request.URL.Path, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	telemetry.Propagate(ctx, request.Header)
	err := c.exchange(request, into)
	if err != nil {
		span.SetStatus(codes.Error, "") // no error text, because a program that is not a log-server may have sent the text
	}
	return err
}

func (c *Client) exchange(request *http.Request, into any) error {
	response, err := c.http.Do(request)
	if err != nil {
		return unavailable(err)
	}
	defer response.Body.Close()
	if c.Check != nil {
		if err := c.Check(response); err != nil {
			return unavailable(err)
		}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return unavailable(err)
	}
	if response.StatusCode != http.StatusOK {
		return fromAnswer(response.StatusCode, body)
	}
	if text, ok := into.(*[]byte); ok {
		*text = body
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return notLogServer(err)
	}
	return nil
}

const (
	certifiedEvery   = time.Second            // interval between the requests of LearnCertified
	certifiedRarely  = 10 * time.Second       // the same interval if the log demands no cosignatures
	certifiedTimeout = 250 * time.Millisecond // LearnCertified may delay the view of a deal
)

type certified struct {
	size   atomic.Int64
	next   atomic.Int64 // when LearnCertified may ask the log again, in unix nanoseconds
	asking singleflight.Group

	unwitnessed atomic.Bool // the log has said that it demands no cosignatures
}

// Trust sets the keys of LearnCertified, before its first call. Without keys, Certified stays 0.
func (c *Client) Trust(keys *signing.KeySet) { c.heads = &checks{keys: keys} }

// Certified returns the largest tree size known to be cosigned by a quorum, or 0. It never falls.
func (c *Client) Certified() int64 { return c.certified.size.Load() }

// Witnessed reports whether the log demands cosignatures, at the last LearnCertified that the log
// answered. It is true until then.
func (c *Client) Witnessed() bool { return !c.certified.unwitnessed.Load() }

// LearnCertified asks the log for Certified, at most once a second. A call waits at most certifiedTimeout.
// The client trusts the log about the quorum. It checks only that the newest head covers the size and is
// signed by a trusted key.
func (c *Client) LearnCertified(ctx context.Context) {
	due := func() bool { return time.Now().UnixNano() >= c.certified.next.Load() }
	if !due() {
		return
	}
	budget.From(ctx).Rest()
	_, _, _ = c.certified.asking.Do("", func() (any, error) {
		if !due() {
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), certifiedTimeout)
		defer cancel()
		var status Status
		err := c.get(ctx, "/v1/log/status", nil, &status)
		wait := certifiedEvery
		if err == nil {
			c.certified.unwitnessed.Store(!status.Quorum)
		}
		if err == nil && !status.Quorum {
			wait = certifiedRarely
		}
		if err == nil && status.CertifiedSize != nil && c.covered(ctx, *status.CertifiedSize) {
			raise(&c.certified.size, *status.CertifiedSize)
		}
		c.certified.next.Store(time.Now().Add(wait).UnixNano())
		return nil, nil
	})
}

func (c *Client) covered(ctx context.Context, size int64) bool {
	if size <= c.Certified() || c.heads == nil {
		return false
	}
	head, err := c.TreeHead(ctx)
	return err == nil && size <= head.TreeSize && c.heads.head(head) == nil
}
