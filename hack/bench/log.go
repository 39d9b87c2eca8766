package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// appendsPerSecond is how many digests the benchmark signs in advance for each second of
// a measurement. If all digests are appended before the end, the measurement ends early.
const appendsPerSecond = 10_000

type entry struct {
	Entry     string `json:"entry"`
	Signature string `json:"signature"`
	Tag       string `json:"tag"` // the entry again, because each entry needs a tag of its own
}

// appendEntries appends signed digests to log-server from 64 clients, without
// deal-api. If proof is true, each client also fetches and verifies the inclusion
// proof of each entry.
func (b *bench) appendEntries(proof bool, d time.Duration) (*timed, error) {
	secret, err := os.ReadFile(b.stack.AppendSecretFile())
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(string(secret))
	entries, err := b.signedEntries(int(d.Seconds() * appendsPerSecond))
	if err != nil {
		return nil, err
	}
	appends, reads := make([]*client, maxWorkers), make([]*client, maxWorkers)
	for i := range appends {
		appends[i] = newClient(b.stack.LogAppendURL(localstack.LogServer))
		reads[i] = newClient(b.stack.LogReadURL(localstack.LogServer))
		defer appends[i].close()
		defer reads[i].close()
	}
	var next atomic.Int64
	return b.load(maxWorkers, d, func(i int, note func(string, time.Duration)) error {
		n := int(next.Add(1)) - 1
		if n >= len(entries) {
			return errDone
		}
		begin := time.Now()
		var appended translog.Appended
		if _, err := appends[i].call(200, "POST", "/v1/append", token, entries[n], &appended); err != nil {
			return err
		}
		if proof {
			if err := b.proveEntry(reads[i], entries[n].Entry, appended.LeafIndex); err != nil {
				return err
			}
		}
		note("append", time.Since(begin))
		return nil
	})
}

func (b *bench) proveEntry(c *client, digest string, index int64) error {
	var inclusion translog.Inclusion
	if _, err := c.call(200, "GET", fmt.Sprintf("/v1/log/proof?entry=%s&leaf_index=%d", digest, index), "", nil, &inclusion); err != nil {
		return err
	}
	var raw [32]byte
	if _, err := hex.Decode(raw[:], []byte(digest)); err != nil {
		return err
	}
	if inclusion.Entry != digest || inclusion.LeafIndex != index {
		return fmt.Errorf("asked for the proof of leaf %d with entry %s, got leaf %d with entry %s", index, digest, inclusion.LeafIndex, inclusion.Entry)
	}
	proof := certificate.LogProof{TreeSize: inclusion.TreeSize, LeafIndex: index, InclusionPath: inclusion.Path}
	if err := certificate.VerifyInclusion(raw, proof, inclusion.RootHash); err != nil {
		return err
	}
	return b.heads.verifyHead(inclusion.TreeHead, b.key)
}

func (b *bench) signedEntries(n int) ([]entry, error) {
	signer, err := b.signer()
	if err != nil {
		return nil, err
	}
	defer signer.Close()
	entries := make([]entry, n)
	errs := make(chan error, 4)
	var all sync.WaitGroup
	for part := range 4 {
		all.Go(func() {
			for i := part; i < n; i += 4 {
				var digest [32]byte
				rand.Read(digest[:])
				signature, err := signer.Sign(b.ctx, digest)
				if err != nil {
					errs <- err
					return
				}
				entries[i] = entry{hex.EncodeToString(digest[:]), signature, hex.EncodeToString(digest[:])}
			}
		})
	}
	all.Wait()
	close(errs)
	return entries, <-errs
}

func (b *bench) signer() (*signing.Signer, error) {
	return signing.Open(b.ctx, "dev://"+filepath.Join(b.stack.Dir(), "dev-key.pem"))
}
