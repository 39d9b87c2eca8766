// Logcheck grows a log of this checkout under load and verifies it with unmodified
// code of other authors: tessera's client and fsck read its checkpoint, tiles and
// entry bundles and compute proofs from them. `make log-check` runs it.
//
// With -witness, a witness of another author must cosign the checkpoints too. Start
// the witness separately, with the log line that Logcheck prints at its start in the
// configuration.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"

	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

const origin = "localhost/log-check"

// waiters is the number of concurrent appends, which the log batches.
const waiters = 256

// attempts is the largest number of attempts at one append.
const attempts = 10

func main() {
	leaves := flag.Int("leaves", 200_000, "leaves to append")
	witness := flag.String("witness", "", "`VKEY URL` of a witness that must cosign; it must have the log key of -key")
	key := flag.String("key", "", "`file` of the log key, made if it is missing; empty: a temporary one")
	bin := flag.String("bin", "bin", "directory of the built binaries")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *leaves, *key, *witness); err != nil {
		fmt.Fprintln(os.Stderr, "log-check:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, leaves int, keyFile, witness string) error {
	dir, err := os.MkdirTemp("", "fairpact-log-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	keyFile = cmp.Or(keyFile, filepath.Join(dir, "log.pem"))
	key, err := signing.OpenLogKey(ctx, "dev://"+keyFile)
	if err != nil {
		return err
	}
	own, err := checkpoint.Ed25519Key(origin, key.Public())
	if err != nil {
		return err
	}
	fmt.Printf("the log is %s\n", own)
	policy := fmt.Sprintf("log %s\nquorum none\n", own)
	if witness != "" {
		policy = fmt.Sprintf("log %s\nwitness other %s\nquorum other\n", own, witness)
	}
	policyFile := filepath.Join(dir, "policy")
	if err := os.WriteFile(policyFile, []byte(policy), 0o600); err != nil {
		return err
	}
	stack, err := localstack.Start(ctx, localstack.Options{
		Bin: bin, Dir: filepath.Join(dir, "stack"),
		Replicas: map[string]int{localstack.DealAPI: 0, localstack.DeadlineWorker: 0},
		Env: map[string][]string{localstack.LogServer: {
			"FAIRPACT_LOG_KEY=dev://" + keyFile, "FAIRPACT_LOG_ORIGIN=" + origin, "FAIRPACT_WITNESS_POLICY_FILE=" + policyFile,
		}},
	})
	if err != nil {
		return err
	}
	defer func() { _ = stack.Close() }()
	half := leaves / 2
	if err := grow(ctx, stack, 0, half); err != nil {
		return err
	}
	older, err := cosigned(ctx, stack, policy, int64(half))
	if err != nil {
		return err
	}
	if err := grow(ctx, stack, half, leaves); err != nil {
		return err
	}
	newer, err := cosigned(ctx, stack, policy, int64(leaves))
	if err != nil {
		return err
	}
	return verify(ctx, stack.LogReadURL(localstack.LogServer), own, older, newer)
}

// grow appends the entries [first, end) from many concurrent callers.
func grow(ctx context.Context, stack *localstack.Stack, first, end int) error {
	secret, err := os.ReadFile(stack.AppendSecretFile())
	if err != nil {
		return err
	}
	signer, err := signing.Open(ctx, "dev://"+filepath.Join(stack.Dir(), "dev-key.pem"))
	if err != nil {
		return err
	}
	defer func() { _ = signer.Close() }()
	log := translog.NewClient(stack.LogAppendURL(localstack.LogServer), stack.LogReadURL(localstack.LogServer), strings.TrimSpace(string(secret)))
	var next atomic.Int64
	next.Store(int64(first))
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for range waiters {
		all.Go(func() {
			for n := next.Add(1) - 1; n < int64(end) && failed.Load() == nil; n = next.Add(1) - 1 {
				entry := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("log-check"), uint64(n)))
				err := errors.New("not tried")
				for range attempts { // a busy machine answers late, and repeating an append is safe
					var signature string
					if signature, err = signer.Sign(ctx, entry); err == nil {
						if _, err = log.Append(ctx, entry, signature, translog.Tag{}); err == nil {
							break
						}
					}
				}
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	took := time.Since(began)
	fmt.Printf("appended leaves %d to %d in %.1fs, %.0f a second\n", first, end-1, took.Seconds(), float64(end-first)/took.Seconds())
	return nil
}

// cosigned waits for a checkpoint of a size that meets the policy.
func cosigned(ctx context.Context, stack *localstack.Stack, policyText string, size int64) (checkpoint.Checkpoint, error) {
	policy, err := checkpoint.ParsePolicy([]byte(policyText))
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	root, err := url.Parse(stack.LogReadURL(localstack.LogServer) + "/")
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	fetcher, err := client.NewHTTPFetcher(root, nil)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	began := time.Now()
	for {
		text, err := fetcher.ReadCheckpoint(ctx)
		if err != nil {
			return checkpoint.Checkpoint{}, err
		}
		c, by, err := policy.Verify(text)
		if err == nil && c.Size == size {
			fmt.Printf("size %d is published, cosigned by %v, %.1fs after the last append:\n%s\n", size, by, time.Since(began).Seconds(), text)
			return c, nil
		}
		if time.Since(began) > time.Minute {
			return c, fmt.Errorf("no cosigned checkpoint of size %d within a minute; the newest is of size %d: %w", size, c.Size, err)
		}
		select {
		case <-ctx.Done():
			return c, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// verify verifies the log with tessera.
func verify(ctx context.Context, base string, own checkpoint.Key, older, newer checkpoint.Checkpoint) error {
	verifier, err := note.NewVerifier(own.String())
	if err != nil {
		return err
	}
	root, err := url.Parse(base + "/")
	if err != nil {
		return err
	}
	fetcher, err := client.NewHTTPFetcher(root, nil)
	if err != nil {
		return err
	}
	began := time.Now()
	check := fsck.New(origin, verifier, fetcher, leafHashes, fsck.Opts{N: 4})
	if err := check.Check(ctx); err != nil {
		return fmt.Errorf("tessera fsck: %w", err)
	}
	fmt.Printf("tessera fsck: %d leaves, every entry bundle and tile matches the checkpoint, %.1fs\n", newer.Size, time.Since(began).Seconds())

	builder, err := client.NewProofBuilder(ctx, uint64(newer.Size), fetcher.ReadTile)
	if err != nil {
		return err
	}
	path, err := builder.ConsistencyProof(ctx, uint64(older.Size), uint64(newer.Size))
	if err != nil {
		return err
	}
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(older.Size), uint64(newer.Size), path, older.Root[:], newer.Root[:]); err != nil {
		return err
	}
	fmt.Printf("tessera client: size %d extends size %d\n", newer.Size, older.Size)
	const proofs = 1000
	for i := range int64(proofs) {
		index := uint64(i * (newer.Size - 1) / (proofs - 1))
		bundle, err := client.GetEntryBundle(ctx, fetcher.ReadEntryBundle, index/256, uint64(newer.Size))
		if err != nil {
			return err
		}
		path, err := builder.InclusionProof(ctx, index)
		if err != nil {
			return err
		}
		leaf := rfc6962.DefaultHasher.HashLeaf(bundle.Entries[index%256])
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, uint64(newer.Size), leaf, path, newer.Root[:]); err != nil {
			return fmt.Errorf("leaf %d: %w", index, err)
		}
	}
	fmt.Printf("tessera client: %d leaves are included\n", proofs)
	return nil
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
