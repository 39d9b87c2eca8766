//go:build cluster

package cluster

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The API server takes all that the chart renders under every combination of
// values that make chart checks, knows every field of it, and would run it in a
// namespace that is as strict as ours.
func dryRun(t *testing.T, c *cluster) {
	definitions := needed(t, "FAIRPACT_E2E_DEFINITIONS")
	// Some are too long for the annotation that a plain apply leaves.
	must(t, "kubectl", "apply", "--server-side", "-f", definitions)
	must(t, "kubectl", "wait", "--for=condition=Established", "--timeout=60s", "-f", definitions)
	const into = namespace + "-dry"
	must(t, "kubectl", "create", "namespace", into)
	must(t, "kubectl", "label", "namespace", into, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")
	try := func(manifest string) (said string, err error) {
		cmd := exec.CommandContext(t.Context(), "kubectl", "-n", into, "create", "--dry-run=server", "--validate=strict", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	// The API server forgets for a moment that it has learnt a kind.
	eventually(t, "the custom kinds are known", time.Minute, func() bool {
		_, err := run(t.Context(), "", "kubectl", "get", "httproutes,servicemonitors,podmonitors,prometheusrules", "-n", into)
		return err == nil
	})

	minimal := chart + "/tests/values/kms.yaml"
	var all []string
	for _, pattern := range []string{"tests/values/*.yaml", "tests/combinations/*.yaml", "../../manifests/values-*.yaml"} {
		files, err := filepath.Glob(filepath.Join(chart, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			args := []string{"template", release, chart, "-n", into, "--set-string", "image.tag=v1.2.3"}
			if strings.Contains(pattern, "combinations") {
				args = append(args, "--values", minimal)
			}
			rendered := must(t, "helm", append(args, "--values", file)...)
			said, err := try(rendered)
			if err != nil || strings.Contains(said, "Warning") {
				t.Errorf("%s: %v\n%s", file, err, said)
			}
			all = append(all, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		}
	}
	// What refuses nothing shows nothing.
	rendered := must(t, "helm", "template", release, chart, "-n", into, "--values", minimal)
	for right, wrong := range map[string]string{"readOnlyRootFilesystem:": "readOnlyRootFileSystem:", "runAsNonRoot: true": "runAsNonRoot: false"} {
		if said, err := try(strings.ReplaceAll(rendered, right, wrong)); err == nil && !strings.Contains(said, "Warning") {
			t.Errorf("%s: nothing was said\n%s", wrong, said)
		}
	}
	must(t, "kubectl", "delete", "namespace", into, "--wait=false")
	c.shows(t, "server-side dry run of %d combinations of values: %s", len(all), strings.Join(all, " "))
}
