package translog

import (
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/dev/devwitness"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/signing"
)

const testOrigin = "log.example/test"

func newLogKey(t testing.TB) *signing.LogKey {
	t.Helper()
	return of(signing.OpenLogKey(t.Context(), "dev://"+filepath.Join(t.TempDir(), "log.pem"))).ok(t)
}

func (d *deployment) withCheckpoints(t testing.TB, pool *pgxpool.Pool, config Checkpoints) *Log {
	t.Helper()
	config.Origin = testOrigin
	if config.Key == nil {
		config.Key = newLogKey(t)
	}
	return d.openWith(t, pool, nil, quiet, Options{Checkpoints: &config})
}

func waitForCheckpoint(t testing.TB, l *Log, size int64) *signedCheckpoint {
	t.Helper()
	var newest *signedCheckpoint
	eventually(t, fmt.Sprintf("a checkpoint of size %d", size), func() bool {
		var err error
		newest, err = l.checkpoints.newest(t.Context())
		return err == nil && newest.Size >= size
	})
	return newest
}

type tiles struct {
	t    *testing.T
	base string
}

func (r tiles) Height() int { return 8 }

func (r tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (r tiles) ReadTiles(all []tlog.Tile) (data [][]byte, err error) {
	for _, t := range all {
		response, body := send(r.t, "GET", r.base+"/"+checkpoint.TilePath(t))
		if response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/octet-stream" || !strings.Contains(response.Header.Get("Cache-Control"), "immutable") {
			return nil, fmt.Errorf("GET %s: status %d, headers %v", checkpoint.TilePath(t), response.StatusCode, response.Header)
		}
		data = append(data, []byte(body))
	}
	return data, nil
}

// A network with one public read does not wait for all those of another.
func TestNetworksTakeTurnsToReadTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places, memory := budget.New(budget.Options{Size: 1}), budget.NewLog()
		order := make(chan string, 10)
		var all sync.WaitGroup
		for _, network := range []string{"many", "many", "many", "many", "one"} {
			all.Go(func() {
				ctx, call := memory.Begin(t.Context(), network)
				defer call.End()
				done, err := place(ctx, places)
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				order <- network
				time.Sleep(time.Second)
			})
			synctest.Wait()
		}
		all.Wait()
		close(order)
		var got []string
		for network := range order {
			got = append(got, network)
		}
		if want := []string{"many", "many", "one", "many", "many"}; !slices.Equal(got, want) {
			t.Errorf("served in the order %v, want %v", got, want)
		}
	})
}

// The packages sumdb/note and sumdb/tlog verify the checkpoints and tiles. One replica
// serves the tiles from memory. A new replica serves them from the tables.
func TestTilesProveTheLogElsewhere(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	key := newLogKey(t)
	l := d.withCheckpoints(t, d.pool, Checkpoints{Key: key})
	server := readPort(t, l)
	verifier := of(note.NewVerifier(of(note.NewEd25519VerifierKey(testOrigin, key.Public())).ok(t))).ok(t)
	prove := func(base string, tree tlog.Tree, leaf int64) {
		t.Helper()
		entry := entryOf(int(leaf))
		proof := of(tlog.ProveRecord(tree.N, leaf, tlog.TileHashReader(tree, tiles{t, base}))).ok(t)
		check(t, tlog.CheckRecord(proof, tree.N, tree.Hash, leaf, tlog.RecordHash(entry[:])))
		bundle := tlog.Tile{H: 8, L: -1, N: leaf / 256, W: int(min(256, tree.N-leaf/256*256))}
		data := of(tiles{t, base}.ReadTiles([]tlog.Tile{bundle})).ok(t)
		if entries := of(checkpoint.ParseEntryBundle(data[0], bundle.W)).ok(t); [32]byte(entries[leaf%256]) != entry {
			t.Errorf("%s has another entry at leaf %d, want the appended one", checkpoint.TilePath(bundle), leaf)
		}
	}

	var before []tlog.Tree
	for _, size := range []int{1, 2, 255, 256, 257, 512, 700, 256*256 + 1, 256*256 + 300} {
		for from := int(l.publisher.seen()); from < size; from += 4096 {
			fill(t, l, from, min(from+4096, size))
		}
		waitForCheckpoint(t, l, int64(size))
		response, body := send(t, "GET", server+"/checkpoint")
		if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/plain; charset=utf-8" || response.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("GET /checkpoint: status %d, headers %v; want 200, text/plain and no-store", response.StatusCode, response.Header)
		}
		c := of(checkpoint.Parse(of(note.Open([]byte(body), note.VerifierList(verifier))).ok(t).Text)).ok(t)
		tree := tlog.Tree{N: c.Size, Hash: c.Root}
		if tree.N != int64(size) {
			t.Fatalf("a checkpoint of size %d, want %d", tree.N, size)
		}
		for _, n := range []int{0, size / 3, size - 1} {
			prove(server, tree, int64(n))
		}
		for _, older := range before {
			proof := of(tlog.ProveTree(tree.N, older.N, tlog.TileHashReader(tree, tiles{t, server}))).ok(t)
			check(t, tlog.CheckTree(proof, tree.N, tree.Hash, older.N, older.Hash))
		}
		before = append(before, tree)
	}
	fresh := d.withCheckpoints(t, d.pool, Checkpoints{Key: key})
	second := readPort(t, fresh)
	for _, tree := range before {
		prove(second, tree, tree.N/2)
	}
	for _, wrong := range []string{"/tile/0/x000/001", "/tile/0/257.p/45", "/tile/entries/257.p/45", "/tile/0/257", "/tile/1/001.p/2", "/tile/2/000.p/2", "/tile/63/000.p/1",
		"/tile/0/x999/x999/x999/x999/x999/999", "/tile/", "/tile", "/tile/0/000.p/0", "/tile/entries/x"} {
		for _, base := range []string{server, second} {
			if response, body := send(t, "GET", base+wrong); response.StatusCode != 404 {
				t.Errorf("GET %s: status %d, body %.80s; want 404", wrong, response.StatusCode, body)
			}
		}
	}
	requireNoContradiction(t, l, fresh)
}

// The digest of a checkpoint and the deployment key's signature over that digest are
// public. So a caller could send them as an entry and its signature. The log must refuse
// that entry.
func TestCheckpointDigestIsRefusedAsEntry(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.withCheckpoints(t, d.pool, Checkpoints{})
	d.mustAppend(t, l, 0)
	newest := waitForCheckpoint(t, l, 1)
	signature := es256Of(t, newest.note)
	key, err := d.keys.SignedBy(newest.Digest(), signature)
	if err != nil || key.Label != d.signer.PublicKey() {
		t.Fatalf("the deployment key did not sign the digest: %v", err)
	}
	d.mustAppend(t, l, 1) // now l has the committed head in memory, so its next append is one statement without the lock
	for name, by := range map[string]*Log{"in one statement": l, "under the lock": d.open(t, openPool(t, d.url), nil)} {
		if _, err := by.Append(t.Context(), newest.Digest(), signature, Tag(newest.Digest())); err == nil || !strings.Contains(err.Error(), "head or checkpoint") {
			t.Errorf("append the digest of a checkpoint %s: %v, want a refusal that says why", name, err)
		}
		batch := append(candidatesOf(10, 12), candidate{newest.Digest(), 1 << 50, Tag{1}})
		results, err := by.sequencer.sequence(t.Context(), batch)
		if err != nil || results[2].index != refused || results[0].index < 0 || results[1].index < 0 {
			t.Errorf("append the digest of a checkpoint in a batch %s: results %v, %v; want only the last one refused", name, results, err)
		}
	}
	requireNoContradiction(t, l)
}

// es256Of returns the deployment key's signature of a note as `es256:…`.
func es256Of(t *testing.T, signed string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(signed), "\n")
	raw := of(base64.StdEncoding.DecodeString(strings.Fields(lines[len(lines)-1])[2])).ok(t)
	var sig struct{ R, S *big.Int }
	check(t, second(asn1.Unmarshal(raw[4:], &sig)))
	return fmt.Sprintf("es256:%064x%064x", sig.R, sig.S)
}

func TestReplicasShareOneCheckpointASecond(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	key := newLogKey(t)
	replicas := []*Log{d.withCheckpoints(t, d.pool, Checkpoints{Key: key}), d.withCheckpoints(t, openPool(t, d.url), Checkpoints{Key: key})}
	var made, size int
	var span float64
	eventually(t, "a few checkpoints", func() bool {
		d.mustAppend(t, replicas[size%2], size)
		size++
		check(t, d.pool.QueryRow(t.Context(), "SELECT count(*), coalesce(extract(epoch FROM max(signed_at) - min(signed_at)), 0) FROM translog.checkpoints").Scan(&made, &span))
		return made >= 3
	})
	// If checkpoints are at least a second apart, at most span+1 of them fit into span
	// seconds. One more is allowed, because both replicas may store a checkpoint at the same
	// moment.
	if float64(made) > span+2 {
		t.Errorf("%d checkpoints in %.1f s, want at most one a second", made, span)
	}
	if waitForCheckpoint(t, replicas[0], int64(size)).note != waitForCheckpoint(t, replicas[1], int64(size)).note {
		t.Error("the replicas serve two checkpoints of one size, want one")
	}
	requireNoContradiction(t, replicas...)
}

func TestRetiredLogKeyStaysValid(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	old := newLogKey(t)
	before := d.withCheckpoints(t, d.pool, Checkpoints{Key: old})
	d.mustAppend(t, before, 0)
	signed := waitForCheckpoint(t, before, 1)
	before.Close()

	retired := of(checkpoint.Ed25519Key(testOrigin, old.Public())).ok(t)
	next := d.withCheckpoints(t, d.pool, Checkpoints{Retired: []checkpoint.Key{retired}})
	if kept, err := next.checkpoints.newest(t.Context()); err != nil || kept.note != signed.note {
		t.Errorf("read the checkpoint of the old log key: %v, want the same note as before", err)
	}
	d.mustAppend(t, next, 1)
	if _, _, err := checkpoint.Open([]byte(waitForCheckpoint(t, next, 2).note), []checkpoint.Key{next.checkpoints.own}, nil); err != nil {
		t.Errorf("the new checkpoint does not verify under the new log key: %v", err)
	}
	requireNoContradiction(t, next)

	asOwner(t, d, "UPDATE translog.checkpoints SET note = replace(note, E'\\n2\\n', E'\\n3\\n')")
	if _, err := next.checkpoints.newest(t.Context()); err == nil || next.ProofFailures() == 0 {
		t.Errorf("read a changed note: %v, %d failures counted; want an error and a counted failure", err, next.ProofFailures())
	}
}

type witnesses struct {
	all     []*devwitness.Witness
	servers []*httptest.Server
	faults  []atomic.Pointer[http.HandlerFunc] // one for each server; a fault that is set answers instead of the witness
	policy  Checkpoints
}

func newWitnesses(t *testing.T, key *signing.LogKey, quorum string, count int) *witnesses {
	t.Helper()
	own := of(checkpoint.Ed25519Key(testOrigin, key.Public())).ok(t)
	ws := &witnesses{faults: make([]atomic.Pointer[http.HandlerFunc], count)}
	text := fmt.Sprintf("log %s\n", own)
	for i := range count {
		w := of(devwitness.Open(t.TempDir(), fmt.Sprintf("witness.example/%d", i), own)).ok(t)
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if fault := ws.faults[i].Load(); fault != nil {
				(*fault)(out, r)
				return
			}
			w.ServeHTTP(out, r)
		}))
		t.Cleanup(server.Close)
		ws.all, ws.servers = append(ws.all, w), append(ws.servers, server)
		text += fmt.Sprintf("witness w%d %s %s\n", i, w.Key(), server.URL)
	}
	text += quorum + "\n"
	policy := of(checkpoint.ParsePolicy([]byte(text))).ok(t)
	ws.policy = Checkpoints{Key: key, Policy: policy, PolicyText: []byte(text)}
	return ws
}

// witnessed opens a log with `count` witnesses. The parameter `quorum` has the last lines of the
// witness policy: the group lines, if any, and the quorum line.
func witnessed(t *testing.T, quorum string, count int) (*deployment, *witnesses, *Log) {
	t.Helper()
	d, ws := newDeployment(t), newWitnesses(t, newLogKey(t), quorum, count)
	return d, ws, d.withCheckpoints(t, d.pool, ws.policy)
}

func readPort(t *testing.T, l *Log) string {
	t.Helper()
	server := httptest.NewServer(l.ReadHandler())
	t.Cleanup(server.Close)
	return server.URL
}

func (ws *witnesses) fail(i int, fault http.HandlerFunc) { ws.faults[i].Store(&fault) }
func (ws *witnesses) heal(i int)                         { ws.faults[i].Store(nil) }

func TestQuorumCertifies(t *testing.T) {
	t.Parallel()
	d, ws, l := witnessed(t, "group both all w0 w1\nquorum both", 2)
	server := readPort(t, l)
	size := int64(0)
	certified := func() int64 { return l.checkpoints.certified.Load() }
	grow := func() {
		t.Helper()
		d.mustAppend(t, l, int(size))
		size++
	}
	becomes := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return certified() == size })
	}

	grow()
	becomes("both cosign")
	var status Status
	_, body := send(t, "GET", server+"/v1/log/status")
	check(t, json.Unmarshal([]byte(body), &status))
	if *status.Origin != testOrigin || *status.CheckpointSize != size || *status.CertifiedSize != size || !status.Quorum || len(status.Keys) != 2 {
		t.Errorf("GET /v1/log/status: %s, want size %d with its quorum and two keys", body, size)
	}

	// While one of the two witnesses is faulty, checkpoints are published but not certified.
	stranger := of(devwitness.Open(t.TempDir(), "witness.example/1", l.checkpoints.own)).ok(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, fault := range map[string]http.HandlerFunc{
		"dead":            func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"refusing":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) },
		"another's key":   stranger.ServeHTTP,
		"not a signature": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") },
		"a forged signature": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, ws.all[1].Key().Line(make([]byte, 72)))
		},
		"claims a larger log": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "1000000", http.StatusConflict) },
		"claims our size":     func(w http.ResponseWriter, r *http.Request) { http.Error(w, oldOf(r), http.StatusConflict) },
		"slow": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		},
	} {
		asked := make(chan struct{}, 64)
		ws.fail(1, func(w http.ResponseWriter, r *http.Request) { asked <- struct{}{}; fault(w, r) })
		had := certified()
		grow()
		waitForCheckpoint(t, l, size)
		eventually(t, name+": the witness is asked", func() bool { return len(asked) > 0 })
		if certified() != had {
			t.Fatalf("%s: certified %d, but one of two witnesses has not cosigned", name, certified())
		}
		ws.heal(1)
		if name == "slow" {
			ws.servers[1].CloseClientConnections()
		}
		becomes(name + ": the witness works again")
	}
	requireNoContradiction(t, l)
}

func oldOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	line, _, _ := strings.Cut(string(body), "\n")
	return strings.TrimPrefix(line, "old ")
}

func TestQuorumNoneCertifiesNothing(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.withCheckpoints(t, d.pool, newWitnesses(t, newLogKey(t), "quorum none", 1).policy)
	d.mustAppend(t, l, 0)
	eventually(t, "the witness cosigns", func() bool {
		newest, err := l.checkpoints.newest(t.Context())
		return err == nil && newest.Size == 1 && len(newest.lines) == 1
	})
	if n := l.checkpoints.certified.Load(); n != 0 {
		t.Errorf("certified size %d with quorum none, want 0", n)
	}
}

func TestWitnessesAreAskedAfterARestart(t *testing.T) {
	t.Parallel()
	d, ws, l := witnessed(t, "quorum w0", 1)
	for n := range 3 {
		d.mustAppend(t, l, n)
		eventually(t, "it is certified", func() bool { return l.checkpoints.certified.Load() == int64(n+1) })
	}
	l.Close()
	asOwner(t, d, "DELETE FROM translog.cosignatures WHERE tree_size = 3")
	next := d.withCheckpoints(t, openPool(t, d.url), ws.policy)
	eventually(t, "the lost cosignature is fetched again", func() bool {
		newest, err := next.checkpoints.newest(t.Context())
		return err == nil && len(newest.lines) == 1
	})
	d.mustAppend(t, next, 3)
	eventually(t, "it is certified", func() bool { return next.checkpoints.certified.Load() == 4 })
	requireNoContradiction(t, next)
}

func TestStoredQuorumIsVerified(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ws := newWitnesses(t, newLogKey(t), "quorum w0", 1)
	ws.servers[0].Close()
	l := d.withCheckpoints(t, d.pool, ws.policy)
	d.mustAppend(t, l, 0)
	waitForCheckpoint(t, l, 1)
	asOwner(t, d, "INSERT INTO translog.witnessed VALUES (1)")
	asOwner(t, d, "INSERT INTO translog.cosignatures VALUES ('x', 1, '"+ws.all[0].Key().Line(make([]byte, 72))+"')")
	newest, err := l.checkpoints.newest(t.Context())
	if err != nil || l.checkpoints.certified.Load() != 0 || len(newest.lines) != 1 {
		t.Errorf("certified size %d, %d lines, %v; want size 0, because the stored cosignature is not valid", l.checkpoints.certified.Load(), len(newest.lines), err)
	}

	asOwner(t, d, "INSERT INTO translog.cosignatures VALUES ('y', 1, E'— w.example/1 AAAAAAB=\\n'), ('z', 1, E'— w.example/1 AAAA\\rAAAA\\n')")
	newest, err = l.checkpoints.newest(t.Context())
	if err != nil || len(newest.lines) != 1 {
		t.Errorf("after lines that are not canonical were stored: %v, lines %q; want only the canonical one", err, newest.lines)
	}
}

func TestCheckpointSettingsAreChecked(t *testing.T) {
	key := newLogKey(t)
	other := of(checkpoint.Ed25519Key("other.example", newLogKey(t).Public())).ok(t)
	policy := of(checkpoint.ParsePolicy(fmt.Appendf(nil, "log %s\nquorum none\n", other))).ok(t)
	_, keys := newKey(t)
	for name, c := range map[string]Checkpoints{
		"no origin":                           {Key: key},
		"an origin with a scheme":             {Origin: "https://log.example", Key: key},
		"the policy of another log":           {Origin: testOrigin, Key: key, Policy: policy},
		"a retired key with another log name": {Origin: testOrigin, Key: key, Retired: []checkpoint.Key{other}},
	} {
		if _, err := newCheckpoints(&Log{checks: checks{keys: keys, logger: quiet}}, c); err == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
}

func TestSecondConflictForOneCheckpointIsAFailure(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ws := newWitnesses(t, newLogKey(t), "quorum w0", 1)
	config, silent := ws.policy, *ws.policy.Policy
	silent.Witnesses = slices.Clone(silent.Witnesses)
	silent.Witnesses[0].URL = "" // the log does not ask a witness without a URL, so only this test asks it
	config.Policy = &silent
	l := d.withCheckpoints(t, d.pool, config)
	for n := range 2 {
		d.mustAppend(t, l, n)
		waitForCheckpoint(t, l, int64(n+1))
	}
	ws.fail(0, func(w http.ResponseWriter, r *http.Request) {
		size := "1"
		if oldOf(r) == "1" {
			size = "2"
		}
		http.Error(w, size, http.StatusConflict)
	})
	a := &cosigning{checkpoints: l.checkpoints, client: http.DefaultClient}
	endpoint := &witnessEndpoint{url: ws.servers[0].URL, witnesses: ws.policy.Policy.Witnesses, done: -1}
	target := waitForCheckpoint(t, l, 2)
	for n := range 3 {
		outcome, err := a.ask(t.Context(), endpoint, target)
		if outcome != outcomeConflict || (err != nil) != (n > 0) {
			t.Errorf("call %d: outcome %s, %v; want conflict, with an error from the second call on", n, outcome, err)
		}
	}
	ws.heal(0)
	endpoint.size = 0
	if outcome, err := a.ask(t.Context(), endpoint, target); outcome != outcomeCosigned || err != nil || endpoint.done != 2 {
		t.Errorf("after the conflicts: outcome %s, %v; want cosigned", outcome, err)
	}
}

func TestQuorumWaitStartsAgainWithEachQuorum(t *testing.T) {
	start := time.Now()
	var q quorumWait
	for n, step := range []struct {
		second, newest, certified int64
		want                      int64
	}{
		{0, -1, 0, 0}, {10, 0, 0, 0}, {20, 1, 0, 10}, {30, 5, 0, 20}, {40, 6, 1, 0}, {50, 9, 1, 10}, {60, 9, 9, 0}, {70, 9, 9, 0}, {71, 10, 9, 1},
	} {
		if got := q.follow(step.newest, step.certified, start.Add(time.Duration(step.second)*time.Second)); got != time.Duration(step.want)*time.Second {
			t.Errorf("step %d: %s, want %d s", n, got, step.want)
		}
	}
}

func TestWitnessLockEndsWithASilentSession(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.withCheckpoints(t, d.pool, Checkpoints{})
	conn, err := l.checkpoints.lock(t.Context())
	if err != nil || conn == nil {
		t.Fatalf("the lock is not free: %v", err)
	}
	var idle string
	check(t, conn.QueryRow(t.Context(), "SHOW idle_session_timeout").Scan(&idle))
	if idle != "15s" {
		t.Errorf("idle_session_timeout is %s, want 15s", idle)
	}
	if other, err := l.checkpoints.lock(t.Context()); other != nil || err != nil {
		t.Errorf("the lock for a second session: taken %t, %v; want neither", other != nil, err)
	}
	check(t, conn.Close(t.Context()))
}

func TestCertifiedSizeIsCappedByASignedHead(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	d.mustAppend(t, l, 0, 1, 2)
	log, claims := l.ReadHandler(), atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/log/status" {
			log.ServeHTTP(w, r)
			return
		}
		size := claims.Load()
		check(t, json.NewEncoder(w).Encode(Status{Quorum: true, CertifiedSize: &size}))
	}))
	defer server.Close()
	learned := func(c *Client, size int64) int64 {
		claims.Store(size)
		c.certified.next.Store(0)
		c.LearnCertified(t.Context())
		return c.Certified()
	}
	client, withoutKeys, otherKeys := NewClient("", server.URL, ""), NewClient("", server.URL, ""), NewClient("", server.URL, "")
	client.Trust(d.keys)
	otherKeys.Trust(newDeployment(t).keys)
	for _, claim := range []int64{canon.MaxInt, 1 << 60, 4, -1} {
		if got := learned(client, claim); got != 0 {
			t.Errorf("the log claimed size %d: the client believed %d, want 0", claim, got)
		}
	}
	eventually(t, "sizes that a signed head covers are believed", func() bool { return learned(client, 2) == 2 && learned(client, 3) == 3 })
	if got := learned(client, canon.MaxInt); got != 3 {
		t.Errorf("the log claimed %d: the client believed %d, want the previous size 3", canon.MaxInt, got)
	}
	if learned(withoutKeys, 3) != 0 || learned(otherKeys, 3) != 0 {
		t.Error("believed a head by an unknown key")
	}
}

// A log without witnesses keeps what its former witnesses certified.
func TestCertifiedSizeOutlivesThePolicy(t *testing.T) {
	t.Parallel()
	d, ws, l := witnessed(t, "quorum w0", 1)
	d.mustAppend(t, l, 0)
	eventually(t, "the witness cosigns", func() bool { return l.checkpoints.certified.Load() == 1 })
	l.Close()
	without := d.withCheckpoints(t, d.pool, Checkpoints{Key: ws.policy.Key})
	d.mustAppend(t, without, 1)
	waitForCheckpoint(t, without, 2)
	client := NewClient("", readPort(t, without), "")
	client.Trust(d.keys)
	if !client.Witnessed() {
		t.Error("Witnessed is false before the log has answered, want true")
	}
	eventually(t, "size 1 is certified, and the log has no witnesses", func() bool {
		client.LearnCertified(t.Context())
		return client.Certified() == 1 && !client.Witnessed()
	})
}

func TestTLogProofPrefersTheQuorum(t *testing.T) {
	t.Parallel()
	d, ws, l := witnessed(t, "quorum w0", 1)
	server := readPort(t, l)
	client := NewClient("", server, "")

	d.mustAppend(t, l, 0)
	eventually(t, "the witness cosigns", func() bool { return l.checkpoints.certified.Load() == 1 })
	ws.fail(0, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	d.mustAppend(t, l, 1)
	waitForCheckpoint(t, l, 2)

	for leaf, want := range map[int64]struct {
		size int64
		met  bool
	}{0: {1, true}, 1: {2, false}} {
		entry := entryOf(int(leaf))
		text := of(client.TLogProof(t.Context(), entry, leaf, false)).ok(t)
		proof := of(checkpoint.ParseProof(text)).ok(t)
		c, _, err := ws.policy.Policy.Verify(proof.Note)
		if proof.Index != leaf || c.Size != want.size || (err == nil) != want.met {
			t.Errorf("leaf %d: the proof is for leaf %d under size %d, %v; want size %d, with quorum: %t", leaf, proof.Index, c.Size, err, want.size, want.met)
		}
		check(t, proof.VerifyInclusion(entry[:], c))
	}

	another := entryOf(7)
	if text, err := client.TLogProof(t.Context(), another, 5, false); err != nil || text != nil {
		t.Errorf("a leaf that the log does not have: proof %q, %v; want none and no error", text, err)
	}
	if text, err := client.TLogProof(t.Context(), another, 0, false); err != nil || text != nil {
		t.Errorf("another entry than the leaf's: proof %q, %v; want none and no error", text, err)
	}
	for query, code := range map[string]string{"": "INVALID_REQUEST", "?leaf_index=x": "INVALID_REQUEST", "?leaf_index=9": "LEAF_NOT_FOUND"} {
		if response, body := send(t, "GET", server+"/v1/log/tlog-proof"+query); response.StatusCode < 400 || !strings.Contains(body, code+":") {
			t.Errorf("GET /v1/log/tlog-proof%s: status %d, body %s; want %s", query, response.StatusCode, body, code)
		}
	}
}

// The proof with first=1 leads to the first checkpoint over the leaf that met the quorum, however the log
// grows. Its cosignatures show how old the leaf is.
func TestFirstTLogProofStays(t *testing.T) {
	t.Parallel()
	d, _, l := witnessed(t, "quorum w0", 1)
	server := readPort(t, l)
	client := NewClient("", server, "")
	size := func(leaf int64, first bool) int64 {
		t.Helper()
		proof := of(checkpoint.ParseProof(of(client.TLogProof(t.Context(), entryOf(int(leaf)), leaf, first)).ok(t))).ok(t)
		return of(checkpoint.ParseNote(string(proof.Note))).ok(t).Size
	}
	for n := range int64(3) {
		d.mustAppend(t, l, int(n))
		eventually(t, "the witness cosigns", func() bool { return l.checkpoints.certified.Load() == n+1 })
	}
	for leaf := range int64(3) {
		if first, newest := size(leaf, true), size(leaf, false); first != leaf+1 || newest != 3 {
			t.Errorf("leaf %d: the first proof leads to size %d and the other one to size %d, want %d and 3", leaf, first, newest, leaf+1)
		}
	}
	if response, body := send(t, "GET", server+"/v1/log/tlog-proof?first=1&entry="+hex.EncodeToString(entryBytes(0))); response.StatusCode != 200 || !strings.Contains(body, "\n1\n") {
		t.Errorf("by entry: status %d\n%s", response.StatusCode, body)
	}
	if response, body := send(t, "GET", server+"/v1/log/tlog-proof?leaf_index=0&first=yes"); response.StatusCode != 400 || !strings.Contains(body, "INVALID_REQUEST:") {
		t.Errorf("first=yes: status %d %s", response.StatusCode, body)
	}
}

func entryBytes(n int) []byte {
	entry := entryOf(n)
	return entry[:]
}
