package kmstest

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// awsRefusal is an error of the service: HTTP status, error type and message.
type awsRefusal struct {
	status        int
	kind, message string
}

func (r *awsRefusal) Error() string { return r.kind + ": " + r.message }

func refused(kind, format string, values ...any) error {
	status := map[string]int{
		"KMSInternalException": 500, "KeyUnavailableException": 500, "DependencyTimeoutException": 503, "ServiceUnavailableException": 503,
	}[kind]
	if status == 0 {
		status = http.StatusBadRequest
	}
	return &awsRefusal{status, kind, fmt.Sprintf(format, values...)}
}

var sigV4 = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=[A-Za-z0-9]{16,128}/([0-9]{8})/([a-z0-9-]+)/kms/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature=[0-9a-f]{64}$`)

// checkAWS is what the front door of the service looks at.
func checkAWS(r *http.Request) error {
	authorization, date := r.Header.Get("Authorization"), r.Header.Get("X-Amz-Date")
	parts := sigV4.FindStringSubmatch(authorization)
	at, err := time.Parse("20060102T150405Z", date)
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/" || r.Header.Get("Content-Type") != "application/x-amz-json-1.1":
		return refused("UnknownOperationException", "")
	case authorization == "":
		return refused("MissingAuthenticationTokenException", "Missing Authentication Token")
	case parts == nil || err != nil || parts[1] != date[:8]:
		return refused("IncompleteSignatureException", "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature' parameters and an 'X-Amz-Date' header of the same day.")
	case parts[2] != awsTestRegion:
		return refused("InvalidSignatureException", "Credential should be scoped to a valid region.")
	case time.Since(at).Abs() > 5*time.Minute:
		return refused("InvalidSignatureException", "Signature expired: %s is not within 5 min. of %s", date, time.Now().UTC().Format("20060102T150405Z"))
	}
	for _, name := range []string{"host", "x-amz-date", "x-amz-target"} {
		if !strings.Contains(";"+parts[3]+";", ";"+name+";") {
			return refused("InvalidSignatureException", "'%s' must be a signed header.", name)
		}
	}
	return nil
}

// ServeHTTP answers one operation.
func (a *AWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	fault := None
	var answer any
	if err = checkAWS(r); err == nil {
		answer, fault, err = a.operate(r, body)
	}
	if errors.Is(err, http.ErrAbortHandler) {
		panic(err) // closes the connection without a word
	}
	if fault == Redirected {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		return
	}
	status := http.StatusOK
	var refusal *awsRefusal
	if errors.As(err, &refusal) {
		status = refusal.status
		w.Header().Set("x-amzn-ErrorType", refusal.kind)
		member := "message"
		if refusal.kind == "AccessDeniedException" {
			member = "Message" // as the service has it
		}
		answer = map[string]string{"__type": refusal.kind, member: refusal.message}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("Cache-Control", "no-cache, no-store, must-revalidate, private")
	w.Header().Set("x-amzn-RequestId", rand.Text())
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	w.WriteHeader(status)
	if fault == TruncatedBody {
		_, _ = w.Write(text[:len(text)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(text)
}
