package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// strangers is a Python program that runs the independent verifier for all calls of RunVerifier in
// one process, because starting Python takes longer than a verification.
const strangers = `
import contextlib, io, json, sys
sys.path.insert(0, "verifier")
sys.dont_write_bytecode = True
import verify
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = verify.main(json.loads(line))
    print(json.dumps({"code": code, "said": said.getvalue()}), flush=True)
`

var strangerAt struct {
	sync.Mutex
	questions io.Writer // stdin of the Python process; nil until RunVerifier starts the process
	answers   *json.Decoder
}

// Verifier runs the independent verifier (see RunVerifier), and fails the test if RunVerifier returns an error.
func Verifier(t testing.TB, args ...string) (accepted bool, said string) {
	t.Helper()
	accepted, said, err := RunVerifier(args...)
	if err != nil {
		t.Fatal(err)
	}
	return accepted, said
}

// RunVerifier runs the independent verifier with the command-line arguments args. It returns the
// verifier's verdict and output, or an error if there is no verdict. A document that is consistent but
// whose issuer is unknown is accepted.
func RunVerifier(args ...string) (accepted bool, said string, err error) {
	strangerAt.Lock()
	defer strangerAt.Unlock()
	if strangerAt.questions == nil {
		// When the test process ends, the stdin of the Python process closes, and so Python also ends.
		cmd := exec.Command("python3", "-c", strangers)
		cmd.Dir, cmd.Stderr = Repo("e2e"), os.Stderr
		in, errIn := cmd.StdinPipe()
		out, errOut := cmd.StdoutPipe()
		if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
			return false, "", err
		}
		strangerAt.questions, strangerAt.answers = in, json.NewDecoder(out)
	}
	var verdict struct {
		Code int
		Said string
	}
	if err := errors.Join(json.NewEncoder(strangerAt.questions).Encode(args), strangerAt.answers.Decode(&verdict)); err != nil {
		return false, "", fmt.Errorf("independent verifier: %w", err)
	}
	if verdict.Code > 1 && verdict.Code != 4 {
		return false, "", fmt.Errorf("independent verifier: exit code %d, want 0, 1 or 4:\n%s", verdict.Code, verdict.Said)
	}
	return verdict.Code != 1, verdict.Said, nil
}

// File writes content to a new temporary file and returns the path of the file. `content` is a
// []byte, or a value that File encodes as JSON.
func File(t testing.TB, content any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "content.json")
	writeFile(t, path, content)
	return path
}

func writeFile(t testing.TB, path string, content any) {
	t.Helper()
	text, ok := content.([]byte)
	if !ok {
		text = Encoded(t, content)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// RequireIndependentVerdict requires that the independent verifier accepts the certificate, or rejects it if
// `accepted` is false. The verifier fetches the keys and the tree head from the service.
func RequireIndependentVerdict(t testing.TB, c *Client, certificate []byte, accepted bool) {
	t.Helper()
	if good, said := Verifier(t, "--certificate", File(t, certificate), "--base-url", c.Base); good != accepted {
		t.Errorf("the independent verifier returned accepted = %v, want %v\n%s", good, accepted, said)
	}
}

// Recomputed requires that the independent verifier accepts a certificate. If all parties have
// revealed, the verifier also opens the commitments and recomputes the result from the inputs.
func (x *UnfinishedDeal) Recomputed(t testing.TB, c *Client, certificate []byte) {
	t.Helper()
	var shown struct {
		RevealsClosedAt *int64 `json:"reveals_closed_at"`
	}
	if err := json.Unmarshal(certificate, &struct{ Timing any }{&shown}); err != nil {
		t.Fatal(err)
	}
	rows := make([]any, len(x.Inputs))
	for i, in := range x.Inputs {
		if shown.RevealsClosedAt != nil {
			rows[i] = Body{"input": in.Input, "salt": in.Salt}
		}
	}
	good, said := Verifier(t, "--certificate", File(t, certificate), "--base-url", c.Base, "--inputs", File(t, rows), "--params", File(t, x.Params))
	if !good {
		t.Errorf("the independent verifier rejected a certificate:\n%s\n%s", said, certificate)
	}
}
