//go:build cluster

package cluster

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/beacon/devbeacon"
)

const (
	seed = "the cluster tests"

	// The nodes have no way to the public relays.
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

// beaconOf runs the development beacon and gives the values that pin it.
func beaconOf(t *testing.T, tag string) (file string) {
	t.Helper()
	apply(t, fmt.Sprintf(beaconPods, tag, seed))
	chain := devbeacon.New([]byte(seed)).Chain()
	values, err := json.Marshal(object{"beacon": object{
		"relays": []string{"http://beacon:8080"}, "chainHash": chain.Hash, "publicKey": hex.EncodeToString(chain.PublicKey),
		"period": chain.Period, "genesis": chain.Genesis,
	}})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "beacon.json")
	if err := os.WriteFile(file, values, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The black-box tests that need nothing but HTTP: REST and MCP, deals of each
// algorithm, and the independent verifier on their certificates, their
// forgeries included.
var blackbox = []string{
	"TestIndependentVerifierAcceptsEachKind", "TestPublishedVectors", "TestEntropy",
	"TestMCP(NineTools|PlaysEachAlgorithm|IsTheRESTBody|Refusals|ReadsArgumentsStrictly|Draws|Idempotency|Protocol)",
	"TestRefusedCredentials", "TestPermissions", "TestPublicCallsIgnoreAuthorization", "TestKeys",
	"TestCreated", "TestRefusedCreations", "TestLargestCreations", "TestWarnings", "TestReplays", "TestFormOfAnIdempotencyKey",
	"TestReadingsOfASalt", "TestRefusedReveals", "TestCommitments", "TestRejection",
	"TestOrderOfChecks", "TestBodyLimit", "TestContentTypes", "TestMistypedPartyBodies",
	"TestEveryDocumentedPath", "TestPathsThatDoNotExist", "TestResponsesOutsideTheDocumentAreFound",
	"TestCachedReads", "TestSecretsAreNeverCompressed", "TestLLMsExamples", "TestPublishedTexts", "TestRefusedLogReads",
}

func blackBox(t *testing.T, c *cluster) {
	var passed []string
	for _, subject := range []string{"api", "trust", "mcp"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(needed(t, "FAIRPACT_E2E_BLACKBOX"), subject+".test"),
			"-test.v", "-test.timeout=10m", "-test.run=^("+strings.Join(blackbox, "|")+")$")
		cmd.Env = append(os.Environ(), "FAIRPACT_BASE_URL="+c.base, "FAIRPACT_BEACON_SEED="+seed)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", subject, err, regexp.MustCompile(`(?m)^ *(=== (RUN|PAUSE|CONT)|--- PASS) .*\n`).ReplaceAll(out, nil))
		}
		for _, found := range regexp.MustCompile(`(?m)^--- PASS: (\w+) `).FindAllSubmatch(out, -1) {
			passed = append(passed, string(found[1]))
		}
	}
	for _, pattern := range blackbox {
		one := regexp.MustCompile("^" + pattern + "$")
		if !slices.ContainsFunc(passed, one.MatchString) {
			t.Errorf("%s has not run", pattern)
		}
	}
	c.shows(t, "black box against %s: %d tests passed: %s", c.base, len(passed), strings.Join(passed, " "))
}
