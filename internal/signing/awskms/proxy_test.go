package awskms

import (
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// net/http reads the proxy variables once per process. So the test runs its checks in a child
// process that starts with these variables.
func TestNodeCredentialsBypassTheProxy(t *testing.T) {
	const inner = "FAIRPACT_TEST_BEHIND_A_PROXY"
	if os.Getenv(inner) == "" {
		t.Parallel()
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
		const proxy = "http://proxy.test:3128"
		child.Env = append(os.Environ(), inner+"=1", "HTTP_PROXY="+proxy, "http_proxy="+proxy, "HTTPS_PROXY="+proxy, "https_proxy="+proxy, "NO_PROXY=", "no_proxy=")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("the child process: %v, want success; it printed:\n%s", err, out)
		}
		return
	}
	for name, transport := range map[string]*http.Transport{
		"credentials": newHTTP().GetTransport(),
		"KMS":         newTransport(aws.Config{HTTPClient: newHTTP()}),
	} {
		for address, proxied := range map[string]bool{
			"http://169.254.170.23/v1/credentials":          false,
			"http://169.254.169.254/latest/api/token":       false,
			"http://[fd00:ec2::23]/v1/credentials":          false,
			"http://[::ffff:169.254.169.254]/latest":        false,
			"https://kms.eu-central-1.amazonaws.com":        true,
			"https://sts.amazonaws.com":                     true,
			"http://10.0.0.5/a-credentials-service-outside": true,
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			if proxy, err := transport.Proxy(r); err != nil || (proxy != nil) != proxied {
				t.Errorf("%s, %s: proxy %v, %v; want one: %t", name, address, proxy, err, proxied)
			}
		}
	}
}
