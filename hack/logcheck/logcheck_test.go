// Package logcheck tests that Tessera's unmodified fsck and client accept a log that package
// translog of this checkout wrote. `make log-check` runs the test.
package logcheck

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

const (
	origin  = "localhost/log-check"
	callers = 256  // concurrent appends, which the log batches
	proofs  = 1000 // number of inclusion proofs to verify, at indexes spread over the whole log
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Tessera's fsck computes the tree from the entry bundles that the log serves, and compares
// it with the log's tiles and checkpoint. Tessera's client makes consistency and inclusion
// proofs from the tiles.
func TestTesseraVerifiesAGrownLog(t *testing.T) {
	leaves := 20_000
	if given := os.Getenv("LEAVES"); given != "" {
		leaves = must(strconv.Atoi(given))
	}
	ctx, address := t.Context(), servertest.Postgres(t)
	if err := translog.Migrate(ctx, address); err != nil {
		t.Fatal(err)
	}
	pool := must(database.Open(ctx, address, 0))
	defer pool.Close()
	signer := must(signing.Open(ctx, "dev://"+t.TempDir()+"/key.pem"))
	logKey := must(signing.OpenLogKey(ctx, "dev://"+t.TempDir()+"/log.pem"))
	l := must(translog.Open(ctx, pool, signer, signing.NewKeySet(must(keys.OneSigner(signer.PublicKey(), "dev://key", nil, keys.Margin))), slog.New(slog.DiscardHandler),
		translog.Options{Checkpoints: &translog.Checkpoints{Origin: origin, Key: logKey}}))
	defer l.Close()
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
	fetcher := must(client.NewHTTPFetcher(must(url.Parse(server.URL+"/")), nil))
	own := must(checkpoint.Ed25519Key(origin, logKey.Public()))

	grow := func(from, size int) checkpoint.Checkpoint {
		began := time.Now()
		var group errgroup.Group
		group.SetLimit(callers)
		for n := from; n < size; n++ {
			group.Go(func() error {
				entry := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("log-check"), uint64(n)))
				signature, err := signer.Sign(ctx, entry)
				if err == nil {
					_, err = l.Append(ctx, entry, signature, translog.Tag(entry))
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		t.Logf("appended leaves %d to %d in %s", from, size-1, time.Since(began))
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			text, err := fetcher.ReadCheckpoint(ctx)
			if err == nil {
				c, _, err := checkpoint.Open(text, []checkpoint.Key{own}, nil)
				if err == nil && c.Size == int64(size) {
					t.Logf("checkpoint:\n%s", text)
					return c
				}
			}
			if time.Now().After(end) {
				t.Fatalf("no checkpoint of size %d within a minute; the newest is %q (error %v)", size, text, err)
			}
		}
	}
	older := grow(0, leaves/2)
	newer := grow(leaves/2, leaves)

	verifier := must(note.NewVerifier(own.String()))
	if err := fsck.New(origin, verifier, fetcher, leafHashes, fsck.Opts{N: 4}).Check(ctx); err != nil {
		t.Errorf("tessera fsck of %d leaves: %v", leaves, err)
	}
	builder := must(client.NewProofBuilder(ctx, uint64(leaves), fetcher.ReadTile))
	path := must(builder.ConsistencyProof(ctx, uint64(older.Size), uint64(newer.Size)))
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(older.Size), uint64(newer.Size), path, older.Root[:], newer.Root[:]); err != nil {
		t.Errorf("consistency proof of tessera's client from size %d to %d: %v", older.Size, newer.Size, err)
	}
	for i := range proofs {
		index := uint64(i * (leaves - 1) / (proofs - 1))
		bundle := must(client.GetEntryBundle(ctx, fetcher.ReadEntryBundle, index/checkpoint.TileWidth, uint64(leaves)))
		leaf := rfc6962.DefaultHasher.HashLeaf(bundle.Entries[index%checkpoint.TileWidth])
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, uint64(leaves), leaf, must(builder.InclusionProof(ctx, index)), newer.Root[:]); err != nil {
			t.Fatalf("inclusion proof of tessera's client for leaf %d of %d: %v", index, leaves, err)
		}
	}
}

func leafHashes(bundle []byte) ([][]byte, error) {
	var entries api.EntryBundle
	if err := entries.UnmarshalText(bundle); err != nil {
		return nil, err
	}
	hashes := make([][]byte, len(entries.Entries))
	for i, entry := range entries.Entries {
		hashes[i] = rfc6962.DefaultHasher.HashLeaf(entry)
	}
	return hashes, nil
}
