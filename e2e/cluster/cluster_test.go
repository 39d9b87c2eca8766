//go:build cluster

package cluster

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The phases share one release: each finds it well and leaves it well.
func TestCluster(t *testing.T) {
	c := install(t)
	for _, phase := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"helm test plays a deal", func(t *testing.T, _ *cluster) { must(t, "helm", "test", release, "-n", namespace, "--timeout", "3m") }},
		{"who may do what", rights},
		{"who reaches whom", policies},
		{"upgrade and back", upgradeAndBack},
		{"pods deleted", podsDeleted},
		{"the lease", leaseHandedOver},
		{"the books", books},
	} {
		if !t.Run(phase.name, func(t *testing.T) { phase.run(t, c) }) {
			state, _ := run(t.Context(), "", "kubectl", "-n", namespace, "get", "pods", "-o", "wide")
			t.Log(state)
		}
	}
}

// What the images of the two tags call themselves.
const oldVersion, newVersion = "0.0.1", "0.0.2"

func (c *cluster) version(t *testing.T) string {
	t.Helper()
	var status struct{ Version string }
	s := &stream{base: c.base, http: newHTTP()}
	if err := s.call(t.Context(), "GET", "/v1/status", "", nil, 200, &status); err != nil {
		t.Fatal(err)
	}
	return status.Version
}

// A new version with another configuration, and back, under load.
func upgradeAndBack(t *testing.T, c *cluster) {
	c.becomes(t, oldVersion)
	s := startStream(t, c.base)
	c.upgrade(t, c.new, "logLevel=debug")
	c.becomes(t, newVersion)
	must(t, "helm", "rollback", release, "-n", namespace, "--wait", "--timeout", "5m")
	c.becomes(t, oldVersion)
	s.stop(t, "upgrade and rollback")
}

// becomes waits until the last pod of another version has gone from the
// endpoints: helm does not wait for that.
func (c *cluster) becomes(t *testing.T, version string) {
	t.Helper()
	same := 0
	eventually(t, "version "+version+" only", time.Minute, func() bool {
		if same++; !strings.HasPrefix(c.version(t), version) {
			same = 0
		}
		return same == 10
	})
}

// One pod of each kind after another is deleted under load, gently and by force.
func podsDeleted(t *testing.T, c *cluster) {
	for _, how := range [][]string{{"--wait=true"}, {"--grace-period=0", "--force"}} {
		for _, kind := range []string{"deal-api", "log-server", "deadline-worker"} {
			s := startStream(t, c.base)
			time.Sleep(2 * time.Second) // of load before
			kubectl(t, append([]string{"delete", "pod", podsOf(t, kind)[0]}, how...)...)
			kubectl(t, "rollout", "status", "deployment/"+release+"-"+kind, "--timeout=120s")
			s.stop(t, kind+" deleted "+strings.Join(how, " "))
		}
	}
}

func podsOf(t *testing.T, kind string) []string {
	t.Helper()
	return strings.Fields(kubectl(t, "get", "pods", "-l", "app.kubernetes.io/component="+kind, "--field-selector=status.phase=Running",
		"-o", "jsonpath={.items[*].metadata.name}"))
}

type lease struct {
	Spec struct {
		HolderIdentity       string
		LeaseDurationSeconds int
	}
}

func readLease(t *testing.T) (l lease) {
	t.Helper()
	if err := json.Unmarshal([]byte(kubectl(t, "get", "lease", "fairpact-deadline-worker", "-o", "json")), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// The leading worker is deleted: another one leads before the Lease would have
// run out.
func leaseHandedOver(t *testing.T, _ *cluster) {
	before := readLease(t)
	pod, _, _ := strings.Cut(before.Spec.HolderIdentity, "_")
	began := time.Now()
	kubectl(t, "delete", "pod", pod, "--wait=false")
	limit := time.Duration(before.Spec.LeaseDurationSeconds) * time.Second
	eventually(t, "another leader", limit, func() bool {
		holder := readLease(t).Spec.HolderIdentity
		return holder != "" && holder != before.Spec.HolderIdentity
	})
	t.Logf("handed over after %s of at most %s", time.Since(began).Round(10*time.Millisecond), limit)
	kubectl(t, "rollout", "status", "deployment/"+release+"-deadline-worker", "--timeout=120s")
}

// What must never be in the database, whatever was killed on the way.
const never = `
SELECT 'a deal that has ended without its one certificate', deal_id FROM deals d WHERE phase IN ('COMPUTED', 'VOID')
	AND (SELECT count(*) FROM certificates c WHERE c.deal_id = d.deal_id AND c.cert_id = d.cert_id) <> 1
UNION ALL SELECT 'a certificate without signature or leaf', deal_id FROM certificates WHERE signature IS NULL OR leaf_index IS NULL
UNION ALL SELECT 'an entry that is not one leaf, at its index', deal_id FROM certificates c
	WHERE (SELECT array_agg(leaf_index) FROM translog.leaves l WHERE l.entry = sha256(c.payload)) IS DISTINCT FROM ARRAY[c.leaf_index]
UNION ALL SELECT 'a leaf that is no certificate', leaf_index::text FROM translog.leaves WHERE entry NOT IN (SELECT sha256(payload) FROM certificates)
UNION ALL SELECT 'a gap in the leaves', count(*)::text FROM translog.leaves HAVING count(*) > 0 AND (min(leaf_index) <> 0 OR max(leaf_index) <> count(*) - 1)
UNION ALL SELECT 'a deal that is not done', deal_id FROM deals WHERE phase IN ('COMMITTING', 'REVEALING')`

// books counts what all the phases have left: every deal has its end, its
// certificate and its leaf, once.
func books(t *testing.T, _ *cluster) {
	psql := func(query string) string {
		return strings.TrimSpace(kubectl(t, "exec", "deployment/postgres", "--", "psql", needed(t, "FAIRPACT_E2E_DATABASE"), "-At", "-c", query))
	}
	if found := psql(never); found != "" {
		t.Errorf("the database holds:\n%.2000s", found)
	}
	t.Logf("deals, certificates, leaves: %s", psql(`SELECT (SELECT count(*) FROM deals), (SELECT count(*) FROM certificates), (SELECT count(*) FROM translog.leaves)`))
}
