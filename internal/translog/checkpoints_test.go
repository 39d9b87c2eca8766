package translog

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/checkpoint/devwitness"
	"github.com/fairpact/fairpact/internal/signing"
)

const testOrigin = "log.example/test"

// logKey returns a new log key.
func newLogKey(t testing.TB) *signing.LogKey {
	t.Helper()
	key, err := signing.OpenLogKey(t.Context(), "dev://"+filepath.Join(t.TempDir(), "log.pem"))
	check(t, err)
	return key
}

// publishing opens a replica that publishes checkpoints.
func (d *deployment) publishing(t testing.TB, pool *pgxpool.Pool, config Checkpoints) *Log {
	t.Helper()
	config.Origin, config.Keys = testOrigin, d.keys.Keys
	if config.Key == nil {
		config.Key = newLogKey(t)
	}
	option, err := WithCheckpoints(config)
	check(t, err)
	l, err := Open(t.Context(), pool, d.signer, d.keys, quiet, option)
	check(t, err)
	t.Cleanup(l.Close)
	return l
}

// waitForCheckpoint waits for the checkpoint of the newest head.
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

// tiles reads tiles as a client of sumdb/tlog does.
type tiles struct {
	t    *testing.T
	base string
	seen atomic.Int64
}

func (r *tiles) Height() int { return 8 }

func (r *tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (r *tiles) ReadTiles(all []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(all))
	for i, t := range all {
		r.seen.Add(1)
		response, body := send(r.t, "GET", r.base+"/"+checkpoint.TilePath(t))
		if response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/octet-stream" || !strings.Contains(response.Header.Get("Cache-Control"), "immutable") {
			return nil, fmt.Errorf("%s: %d %v", checkpoint.TilePath(t), response.StatusCode, response.Header)
		}
		data[i] = []byte(body)
	}
	return data, nil
}

// sumdb/note and sumdb/tlog, unmodified, verify what a log of three tile levels
// serves, read from memory and from the tables.
func TestTilesProveTheLogElsewhere(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	key := newLogKey(t)
	l := d.publishing(t, d.pool, Checkpoints{Key: key})
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
	vkey, err := note.NewEd25519VerifierKey(testOrigin, key.Public())
	check(t, err)
	verifier, err := note.NewVerifier(vkey)
	check(t, err)

	newest := func(base string, size int64) tlog.Tree {
		t.Helper()
		waitForCheckpoint(t, l, size)
		response, body := send(t, "GET", base+"/checkpoint")
		if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/plain; charset=utf-8" || response.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("/checkpoint: %d %v", response.StatusCode, response.Header)
		}
		opened, err := note.Open([]byte(body), note.VerifierList(verifier))
		check(t, err)
		c, err := checkpoint.Parse(opened.Text)
		check(t, err)
		return tlog.Tree{N: c.Size, Hash: c.Root}
	}

	const most = 256*256 + 300
	sizes := []int{1, 2, 255, 256, 257, 512, 700, 256*256 + 1, most}
	fill(t, l, 0, 1)
	var before []tlog.Tree
	for i, size := range sizes {
		for from := int(l.publisher.seen()); from < size; from += 4096 {
			fill(t, l, from, min(from+4096, size))
		}
		tree := newest(server.URL, int64(size))
		if tree.N != int64(size) {
			t.Fatalf("a checkpoint of size %d, want %d", tree.N, size)
		}
		reader := &tiles{t: t, base: server.URL}
		hashes := tlog.TileHashReader(tree, reader)
		for _, n := range []int{0, size / 3, size - 1} {
			proof, err := tlog.ProveRecord(tree.N, int64(n), hashes)
			check(t, err)
			leaf := entryOf(n)
			check(t, tlog.CheckRecord(proof, tree.N, tree.Hash, int64(n), tlog.RecordHash(leaf[:])))
			checkBundle(t, server.URL, int64(size), n)
		}
		for _, older := range before {
			proof, err := tlog.ProveTree(tree.N, older.N, hashes)
			check(t, err)
			check(t, tlog.CheckTree(proof, tree.N, tree.Hash, older.N, older.Hash))
		}
		before = append(before, tree)
		if i > 0 && reader.seen.Load() == 0 {
			t.Error("no tile was read")
		}
	}

	// A replica that has nothing in memory serves the same, also the old partial tiles.
	fresh := d.publishing(t, d.pool, Checkpoints{Key: key})
	second := httptest.NewServer(fresh.ReadHandler())
	defer second.Close()
	for _, tree := range before {
		hashes := tlog.TileHashReader(tree, &tiles{t: t, base: second.URL})
		proof, err := tlog.ProveRecord(tree.N, tree.N/2, hashes)
		check(t, err)
		leaf := entryOf(int(tree.N / 2))
		check(t, tlog.CheckRecord(proof, tree.N, tree.Hash, tree.N/2, tlog.RecordHash(leaf[:])))
		checkBundle(t, second.URL, tree.N, int(tree.N/2))
	}
	for _, wrong := range []string{"/tile/0/x000/001", "/tile/0/x001/000", "/tile/0/257.p/45", "/tile/entries/257.p/45", "/tile/0/257", "/tile/1/001.p/2", "/tile/2/000.p/2", "/tile/3/000.p/1", "/tile/63/000.p/1",
		"/tile/0/x999/x999/x999/x999/x999/999", "/tile/", "/tile", "/tile/0/000.p/0", "/tile/0/000.p/256", "/tile/entries/x", "/tile//0/000"} {
		for _, base := range []string{server.URL, second.URL} {
			if response, body := send(t, "GET", base+wrong); response.StatusCode != 404 {
				t.Errorf("%s: %d %.80s", wrong, response.StatusCode, body)
			}
		}
	}
	if response, body := send(t, "POST", server.URL+"/tile/0/000"); response.StatusCode != 405 {
		t.Errorf("POST of a tile: %d %s", response.StatusCode, body)
	}
	sound(t, l, fresh)
}

// checkBundle reads the entry bundle of a leaf.
func checkBundle(t *testing.T, base string, size int64, leaf int) {
	t.Helper()
	tile := tlog.Tile{H: 8, L: -1, N: int64(leaf) / 256, W: int(min(256, size-int64(leaf)/256*256))}
	response, body := send(t, "GET", base+"/"+checkpoint.TilePath(tile))
	if response.StatusCode != 200 {
		t.Fatalf("%s: %d %s", checkpoint.TilePath(tile), response.StatusCode, body)
	}
	entries, err := checkpoint.ParseEntryBundle([]byte(body), tile.W)
	check(t, err)
	if want := entryOf(leaf); string(entries[leaf%256]) != string(want[:]) {
		t.Errorf("%s holds another entry at %d", checkpoint.TilePath(tile), leaf)
	}
}

// A checkpoint is a published digest with a good signature of the deployment key,
// and no entry: alone, in a batch, by the fast way and by the careful one.
func TestCheckpointDigestIsNoEntry(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.publishing(t, d.pool, Checkpoints{})
	d.mustAppend(t, l, 0)
	newest := waitForCheckpoint(t, l, 1)
	signature := es256Of(t, newest.note)
	key, err := d.keys.SignedBy(newest.Digest(), signature)
	if err != nil || key.PublicKey != d.signer.PublicKey() {
		t.Fatalf("the deployment key did not sign the digest: %v", err)
	}
	d.mustAppend(t, l, 1) // the head is in memory now
	for name, by := range map[string]*Log{"warm": l, "fresh": d.open(t, openPool(t, d.url), nil)} {
		if _, err := by.Append(t.Context(), newest.Digest(), signature, Tag{}); err == nil || !strings.Contains(err.Error(), "head or checkpoint") {
			t.Errorf("%s: %v", name, err)
		}
		batch := append(candidatesOf(10, 12), candidate{newest.Digest(), 1 << 50, Tag{}})
		places, err := by.sequencer.sequence(t.Context(), batch)
		if err != nil || places[2].index != refused || places[0].index < 0 || places[1].index < 0 {
			t.Errorf("%s, in a batch: %v, %v", name, places, err)
		}
	}
	sound(t, l)
}

// es256Of returns the deployment key's signature of a note as `es256:…`.
func es256Of(t *testing.T, signed string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(signed), "\n")
	raw, err := base64.StdEncoding.DecodeString(strings.Fields(lines[len(lines)-1])[2])
	check(t, err)
	var sig struct{ R, S *big.Int }
	check(t, second(asn1.Unmarshal(raw[4:], &sig)))
	return fmt.Sprintf("es256:%064x%064x", sig.R, sig.S)
}

func TestCheckpointsAreOneForASize(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	key := newLogKey(t)
	one, two := d.publishing(t, d.pool, Checkpoints{Key: key}), d.publishing(t, openPool(t, d.url), Checkpoints{Key: key})
	for n := range 40 { // for more than a second
		d.mustAppend(t, []*Log{one, two}[n%2], n)
		time.Sleep(50 * time.Millisecond)
	}
	first, second := waitForCheckpoint(t, one, 40), waitForCheckpoint(t, two, 40)
	if first.note != second.note {
		t.Error("two checkpoints of one size")
	}
	// At most one a second, and one more where two replicas stored one at the same moment.
	var made int
	var span float64
	check(t, d.pool.QueryRow(t.Context(), "SELECT count(*), extract(epoch FROM max(signed_at) - min(signed_at)) FROM translog.checkpoints").Scan(&made, &span))
	if float64(made) > span+2 {
		t.Errorf("%d checkpoints in %.1f s", made, span)
	}
	sound(t, one, two)
}

func TestNoCheckpointsWithoutAKey(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	d.mustAppend(t, l, 0)
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
	for _, path := range []string{"/checkpoint", "/tile/0/000.p/1", "/v1/log/checkpoint", "/v1/log/policy"} {
		if response, body := send(t, "GET", server.URL+path); response.StatusCode != 404 || !strings.Contains(body, "CHECKPOINT_NOT_FOUND") {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
	response, body := send(t, "GET", server.URL+"/v1/log/status")
	if response.StatusCode != 200 || !strings.Contains(body, `"origin":null`) {
		t.Errorf("status: %d %s", response.StatusCode, body)
	}
}

// After the log key is replaced, the checkpoints of the old key still stand where
// it is listed as retired.
func TestRetiredLogKeyStillStands(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	old := newLogKey(t)
	before := d.publishing(t, d.pool, Checkpoints{Key: old})
	d.mustAppend(t, before, 0)
	signed := waitForCheckpoint(t, before, 1)
	before.Close()

	retired, err := checkpoint.Ed25519Key(testOrigin, old.Public())
	check(t, err)
	next := d.publishing(t, d.pool, Checkpoints{Retired: []checkpoint.Key{retired}})
	if kept, err := next.checkpoints.newest(t.Context()); err != nil || kept.note != signed.note {
		t.Errorf("the old checkpoint: %v", err)
	}
	d.mustAppend(t, next, 1)
	if _, _, err := checkpoint.Open([]byte(waitForCheckpoint(t, next, 2).note), []checkpoint.Key{next.checkpoints.own}, nil); err != nil {
		t.Error(err)
	}
	sound(t, next)

	// Under a key that nobody names, and after somebody changed the row, nothing is served.
	asOwner(t, d, "ALTER TABLE translog.checkpoints DISABLE TRIGGER insert_only")
	asOwner(t, d, "UPDATE translog.checkpoints SET note = replace(note, E'\\n2\\n', E'\\n3\\n')")
	if _, err := next.checkpoints.newest(t.Context()); err == nil || next.ProofFailures() == 0 {
		t.Errorf("a changed note was read: %v", err)
	}
}

// witnesses are small real witnesses that watch a log.
type witnesses struct {
	all     []*devwitness.Witness
	servers []*httptest.Server
	faults  []atomic.Pointer[http.HandlerFunc] // what a server does instead
	policy  Checkpoints
}

func newWitnesses(t *testing.T, key *signing.LogKey, quorum string, count int) *witnesses {
	t.Helper()
	own, err := checkpoint.Ed25519Key(testOrigin, key.Public())
	check(t, err)
	ws := &witnesses{faults: make([]atomic.Pointer[http.HandlerFunc], count)}
	text := fmt.Sprintf("log %s\n", own)
	for i := range count {
		w, err := devwitness.Open(t.TempDir(), fmt.Sprintf("witness.example/%d", i))
		check(t, err)
		w.Watch(own)
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
	policy, err := checkpoint.ParsePolicy([]byte(text))
	check(t, err)
	ws.policy = Checkpoints{Key: key, Policy: policy, PolicyText: []byte(text)}
	return ws
}

func (ws *witnesses) fail(i int, fault http.HandlerFunc) { ws.faults[i].Store(&fault) }
func (ws *witnesses) heal(i int)                         { ws.faults[i].Store(nil) }

func TestQuorumCertifies(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ws := newWitnesses(t, newLogKey(t), "group both all w0 w1\nquorum both", 2)
	l := d.publishing(t, d.pool, ws.policy)
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
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
	response, body := send(t, "GET", server.URL+"/v1/log/checkpoint")
	if response.StatusCode != 200 {
		t.Fatalf("%d %s", response.StatusCode, body)
	}
	c, names, err := ws.policy.Policy.Verify([]byte(body))
	if err != nil || c.Size != size || len(names) != 2 {
		t.Errorf("the cosigned checkpoint: %+v by %v, %v", c, names, err)
	}
	var status Status
	_, body = send(t, "GET", server.URL+"/v1/log/status")
	check(t, json.Unmarshal([]byte(body), &status))
	if *status.Origin != testOrigin || *status.CheckpointSize != size || *status.CertifiedSize != size || !status.Quorum || len(status.Keys) != 2 {
		t.Errorf("%s", body)
	}
	if _, body = send(t, "GET", server.URL+"/v1/log/policy"); body != string(ws.policy.PolicyText) {
		t.Errorf("the policy: %s", body)
	}

	// Each fault delays the quorum and nothing else.
	stranger, err := devwitness.Open(t.TempDir(), "witness.example/1")
	check(t, err)
	stranger.Watch(l.checkpoints.own)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, fault := range map[string]http.HandlerFunc{
		"dead":               func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"failing":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"refusing":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) },
		"another's key":      stranger.ServeHTTP,
		"says nothing":       func(w http.ResponseWriter, _ *http.Request) {},
		"not a signature":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") },
		"a forged signature": forging(ws.all[1].Key()),
		"signs another size": signsAnother(t, ws.all[1]),
		"claims a larger log": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(409)
			_, _ = io.WriteString(w, "1000000\n")
		},
		"claims our size": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(409)
			_, _ = io.WriteString(w, oldOf(r)+"\n")
		},
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
		grow() // is answered all the same
		waitForCheckpoint(t, l, size)
		eventually(t, name+": it is asked", func() bool { return len(asked) > 0 })
		if certified() != had {
			t.Fatalf("%s: certified %d, and one witness of two has not cosigned", name, certified())
		}
		ws.heal(1)
		if name == "slow" {
			ws.servers[1].CloseClientConnections()
		}
		becomes(name + ": it is well again")
	}
	sound(t, l)
}

// A checkpoint that was read before its last cosignature was stored is read again.
func TestStaleCheckpointIsReadAgain(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ws := newWitnesses(t, newLogKey(t), "group both all w0 w1\nquorum both", 2)
	ws.fail(1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	l := d.publishing(t, d.pool, ws.policy)
	d.mustAppend(t, l, 0)
	stale := waitForCheckpoint(t, l, 1)
	if c := l.checkpoints; c.met(stale) {
		t.Fatal("one witness of two makes the quorum")
	} else if got, err := c.cosigned(t.Context(), stale, 0); err != nil || got != stale {
		t.Errorf("nothing is certified, and it is read again: %v", err)
	}
	ws.heal(1)
	eventually(t, "both cosign", func() bool { return l.checkpoints.certified.Load() == 1 })
	got, err := l.checkpoints.cosigned(t.Context(), stale, 0)
	if err != nil || got.Size != stale.Size || !l.checkpoints.met(got) {
		t.Errorf("the stale checkpoint is served: %v", err)
	}
	if got, err := l.checkpoints.cosigned(t.Context(), stale, 1); err != nil || got != stale {
		t.Errorf("a leaf that is not covered: %v", err)
	}
	if again, err := l.checkpoints.cosigned(t.Context(), got, 0); err != nil || again != got {
		t.Errorf("one that has its quorum is read again: %v", err)
	}
}

func oldOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	line, _, _ := strings.Cut(string(body), "\n")
	return strings.TrimPrefix(line, "old ")
}

// forging answers a line of the key that nobody signed.
func forging(key checkpoint.Key) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, key.Line(make([]byte, 72))) }
}

// signsAnother answers a cosignature of another checkpoint under another key.
func signsAnother(t *testing.T, w *devwitness.Witness) http.HandlerFunc {
	skey, _, err := note.GenerateKey(rand.Reader, w.Key().Name())
	check(t, err)
	signer, err := formats.NewSignerForCosignatureV1(skey)
	check(t, err)
	return func(out http.ResponseWriter, _ *http.Request) {
		signature, _ := signer.Sign([]byte(testOrigin + "\n1\nAAAA\n"))
		_, _ = io.WriteString(out, w.Key().Line(signature))
	}
}

// One of two is enough where the policy says so, and with quorum none nothing is
// ever certified.
func TestPolicyDecidesTheQuorum(t *testing.T) {
	t.Parallel()
	for quorum, want := range map[string]bool{"group either any w0 w1\nquorum either": true, "quorum w0": true, "quorum w1": false, "quorum none": false} {
		t.Run(strings.Fields(quorum)[1], func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			ws := newWitnesses(t, newLogKey(t), quorum, 2)
			ws.servers[1].Close() // dead
			l := d.publishing(t, d.pool, ws.policy)
			d.mustAppend(t, l, 0)
			eventually(t, "w0 cosigns", func() bool {
				newest, err := l.checkpoints.newest(t.Context())
				return err == nil && newest.Size == 1 && len(newest.lines) == 1
			})
			if want {
				eventually(t, "it is certified", func() bool { return l.checkpoints.certified.Load() == 1 })
			} else if n := l.checkpoints.certified.Load(); n != 0 {
				t.Errorf("certified %d", n)
			}
		})
	}
}

// The log goes on where a process left off, also with a witness that is ahead of
// what the database remembers.
func TestWitnessIsRememberedOverARestart(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ws := newWitnesses(t, newLogKey(t), "quorum w0", 1)
	l := d.publishing(t, d.pool, ws.policy)
	for n := range 3 {
		d.mustAppend(t, l, n)
		eventually(t, "it is certified", func() bool { return l.checkpoints.certified.Load() == int64(n+1) })
	}
	l.Close()
	asOwner(t, d, "ALTER TABLE translog.cosignatures DISABLE TRIGGER insert_only")
	asOwner(t, d, "DELETE FROM translog.cosignatures WHERE tree_size = 3")
	next := d.publishing(t, openPool(t, d.url), ws.policy)
	eventually(t, "the lost cosignature is fetched again", func() bool {
		newest, err := next.checkpoints.newest(t.Context())
		return err == nil && len(newest.lines) == 1
	})
	d.mustAppend(t, next, 3)
	eventually(t, "it is certified", func() bool { return next.checkpoints.certified.Load() == 4 })
	sound(t, next)
}

// A row that says that a quorum was met, and that no cosignatures back, certifies
// nothing.
func TestQuorumIsVerifiedAndNotBelieved(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ws := newWitnesses(t, newLogKey(t), "quorum w0", 1)
	ws.servers[0].Close()
	l := d.publishing(t, d.pool, ws.policy)
	d.mustAppend(t, l, 0)
	waitForCheckpoint(t, l, 1)
	asOwner(t, d, "INSERT INTO translog.witnessed VALUES (1)")
	asOwner(t, d, "INSERT INTO translog.cosignatures VALUES ('x', 1, '"+ws.all[0].Key().Line(make([]byte, 72))+"')")
	newest, err := l.checkpoints.newest(t.Context())
	if err != nil || l.checkpoints.certified.Load() != 0 || len(newest.lines) != 1 {
		t.Errorf("certified %d, %d lines, %v", l.checkpoints.certified.Load(), len(newest.lines), err)
	}

	// A stored line that others cannot read is not served.
	asOwner(t, d, "INSERT INTO translog.cosignatures VALUES ('y', 1, E'— w.example/1 AAAAAAB=\\n'), ('z', 1, E'— w.example/1 AAAA\\rAAAA\\n')")
	newest, err = l.checkpoints.newest(t.Context())
	if err != nil || len(newest.lines) != 1 {
		t.Errorf("%v, %q", err, newest.lines)
	}
}

func TestCheckpointSettingsRefused(t *testing.T) {
	key := newLogKey(t)
	public, _, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	other, err := checkpoint.Ed25519Key("other.example", public)
	check(t, err)
	policy, err := checkpoint.ParsePolicy(fmt.Appendf(nil, "log %s\nquorum none\n", other))
	check(t, err)
	none := func() []signing.Key { return nil }
	for name, c := range map[string]Checkpoints{
		"no origin":         {Key: key, Keys: none},
		"a scheme":          {Origin: "https://log.example", Key: key, Keys: none},
		"another's policy":  {Origin: testOrigin, Key: key, Keys: none, Policy: policy},
		"another's old key": {Origin: testOrigin, Key: key, Keys: none, Retired: []checkpoint.Key{other}},
	} {
		if _, err := WithCheckpoints(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A witness that names one size and then another would be asked without end.
func TestSecondConflictForOneCheckpointIsAFailure(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ws := newWitnesses(t, newLogKey(t), "quorum w0", 1)
	config, silent := ws.policy, *ws.policy.Policy
	silent.Witnesses = slices.Clone(silent.Witnesses)
	silent.Witnesses[0].URL = "" // the log itself asks nobody
	config.Policy = &silent
	l := d.publishing(t, d.pool, config)
	for n := range 2 {
		d.mustAppend(t, l, n)
		waitForCheckpoint(t, l, int64(n+1))
	}
	ws.fail(0, func(w http.ResponseWriter, r *http.Request) {
		size := "1\n"
		if oldOf(r) == "1" {
			size = "2\n"
		}
		w.WriteHeader(409)
		_, _ = io.WriteString(w, size)
	})
	a := &asking{checkpoints: l.checkpoints, client: http.DefaultClient}
	place := &submission{url: ws.servers[0].URL, witnesses: ws.policy.Policy.Witnesses, done: -1}
	target := waitForCheckpoint(t, l, 2)
	for n := range 3 {
		outcome, err := a.ask(t.Context(), place, target)
		if outcome != outcomeConflict || (err != nil) != (n > 0) {
			t.Errorf("call %d: %s, %v", n, outcome, err)
		}
	}
	ws.heal(0)
	place.size = 0
	if outcome, err := a.ask(t.Context(), place, target); outcome != outcomeCosigned || err != nil || place.done != 2 {
		t.Errorf("well again: %s, %v", outcome, err)
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

// The database ends the session of a replica that is gone, and so its lock.
func TestWitnessLockEndsWithASilentSession(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.publishing(t, d.pool, Checkpoints{})
	conn, err := l.checkpoints.lock(t.Context())
	if err != nil || conn == nil {
		t.Fatalf("the lock is not free: %v", err)
	}
	var idle string
	check(t, conn.QueryRow(t.Context(), "SHOW idle_session_timeout").Scan(&idle))
	if idle != "15s" {
		t.Errorf("the session may be silent for %s", idle)
	}
	if other, err := l.checkpoints.lock(t.Context()); other != nil || err != nil {
		t.Errorf("a second session has the lock: %v", err)
	}
	check(t, conn.Close(t.Context()))
}

// A client believes the log no size that no signed head covers.
func TestCertifiedSizeIsCappedByASignedHead(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	for n := range 3 {
		d.mustAppend(t, l, n)
	}
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
	client, wary, other := NewClient("", server.URL, ""), NewClient("", server.URL, ""), NewClient("", server.URL, "")
	client.Trust(d.keys)
	other.Trust(newDeployment(t).keys)
	for _, claim := range []int64{maxSize, 1 << 60, 4, -1} {
		if got := learned(client, claim); got != 0 {
			t.Errorf("claimed %d: believed %d", claim, got)
		}
	}
	eventually(t, "what a signed head covers", func() bool { return learned(client, 2) == 2 && learned(client, 3) == 3 })
	if got := learned(client, maxSize); got != 3 {
		t.Errorf("believed %d", got)
	}
	if learned(wary, 3) != 0 || learned(other, 3) != 0 {
		t.Error("a head by no known key was believed")
	}
}
