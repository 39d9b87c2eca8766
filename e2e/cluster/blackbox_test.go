//go:build cluster

package cluster

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
)

const (
	seed = "the cluster tests"

	// The tests run their own beacon, because the nodes cannot reach the public relays.
	beaconPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: beacon}
spec:
  selector: {matchLabels: {app: beacon}}
  template:
    metadata: {labels: {app: beacon}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: beacon
        image: localhost/fairpact/clustertool:%s
        imagePullPolicy: Never
        args: [beacon, %q, ":8080"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
        securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Service
metadata: {name: beacon}
spec: {selector: {app: beacon}, ports: [{port: 8080}]}
`
)

func beaconOf(t *testing.T, tag string) (file string) {
	t.Helper()
	apply(t, namespace, fmt.Sprintf(beaconPods, tag, seed))
	chain := devbeacon.New([]byte(seed)).Chain()
	return e2e.File(t, e2e.Body{"beacon": e2e.Body{
		"relays": []string{"http://beacon:8080"}, "chainHash": chain.Hash, "publicKey": hex.EncodeToString(chain.PublicKey), "genesisSeed": chain.GenesisSeed, "id": chain.BeaconID,
		"period": chain.Period, "genesis": chain.Genesis,
	}})
}

// blackbox has name patterns of tests that need only HTTP. The tests are in e2e/api, e2e/trust and
// e2e/mcp.
var blackbox = []string{
	"TestIndependentVerifierAcceptsEachKind", "TestPublishedVectors", "TestEntropy",
	"TestMCP(NineTools|PlaysEachAlgorithm|IsTheRESTBody|Refusals|ReadsArgumentsStrictly|Draws|Idempotency|Protocol)",
	"TestRefusedCredentials", "TestPermissions", "TestPublicCallsIgnoreAuthorization", "TestKeys",
	"TestCreated", "TestRefusedCreations", "TestLargestCreations", "TestWarnings", "TestReplays", "TestFormOfAnIdempotencyKey",
	"TestReadingsOfASalt", "TestRefusedReveals", "TestCommitments", "TestRejection",
	"TestOrderOfChecks", "TestBodyLimit", "TestContentTypes", "TestMistypedPartyBodies",
	"TestEveryDocumentedPath", "TestPathsThatDoNotExist",
	"TestCachedReads", "TestSecretsAreNeverCompressed", "TestLLMsExamples", "TestPublishedTexts", "TestRefusedLogReads",
}

// blackBox runs the tests that match a pattern in the list blackbox, against the Helm release in the
// cluster. At least one test must pass for each pattern.
func blackBox(t *testing.T, c *cluster) {
	var passed []string
	for _, subject := range []string{"api", "trust", "mcp"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(needed(t, "FAIRPACT_E2E_BLACKBOX"), subject+".test"),
			"-test.v", "-test.timeout=10m", "-test.run=^("+strings.Join(blackbox, "|")+")$")
		cmd.Env = append(os.Environ(), "FAIRPACT_BASE_URL="+c.base, "FAIRPACT_BEACON_SEED="+seed)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tests of e2e/%s: %v\n%s", subject, err, regexp.MustCompile(`(?m)^ *(=== (RUN|PAUSE|CONT)|--- PASS) .*\n`).ReplaceAll(out, nil))
		}
		for _, found := range regexp.MustCompile(`(?m)^--- PASS: (\w+) `).FindAllSubmatch(out, -1) {
			passed = append(passed, string(found[1]))
		}
	}
	for _, pattern := range blackbox {
		one := regexp.MustCompile("^" + pattern + "$")
		if !slices.ContainsFunc(passed, one.MatchString) {
			t.Errorf("no test %s has run: correct the list blackbox", pattern)
		}
	}
	c.shows(t, "black box against %s: %d tests passed: %s", c.base, len(passed), strings.Join(passed, " "))
}
