package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// Each of readKinds is measured with 64 clients. Requests about a deal or a certificate use the
// deals that ended in this run.
var readKinds = []string{"verify", "certificate", "deal view", "tree head", "tree head of log-server"}

func (b *bench) read(kind string, d time.Duration) (*timed, error) {
	if len(b.ended) == 0 {
		if _, err := b.playDeals(maxWorkers, d); err != nil {
			return nil, err
		}
	}
	logs := make([]*client, maxWorkers)
	for i := range logs {
		logs[i] = newClient(b.stack.LogReadURL(localstack.LogServer))
		defer logs[i].close()
	}
	return b.load(maxWorkers, d, func(i int, note func(string, time.Duration)) error {
		deal := b.ended[mathrand.IntN(len(b.ended))]
		c := b.workers[i].client
		begin := time.Now()
		var answer []byte
		var err error
		expected := deal.certID
		switch kind {
		case "verify":
			answer, err = c.call(200, "GET", "/v1/verify/"+deal.certID, "", nil, nil)
			expected = `"valid":true`
		case "certificate":
			answer, err = c.call(200, "GET", "/v1/deals/"+deal.dealID+"/certificate", deal.token, nil, nil)
		case "deal view":
			answer, err = c.call(200, "GET", "/v1/deals/"+deal.dealID, deal.token, nil, nil)
		case "tree head":
			answer, err = c.call(200, "GET", "/v1/log/tree-head", "", nil, nil)
			expected = `"root_hash"`
		case "tree head of log-server":
			answer, err = logs[i].call(200, "GET", "/v1/log/tree-head", "", nil, nil)
			expected = `"root_hash"`
		}
		note("call", time.Since(begin))
		if err == nil && !strings.Contains(string(answer), expected) {
			err = fmt.Errorf("%s: the answer does not contain %s; it begins with: %.300s", kind, expected, answer)
		}
		return err
	})
}

// pairsOfVerifications returns how many pairs of P-256 signatures all cores together verify
// per second. The report calls this rate the limit of GET /v1/verify, because a call without
// cached results verifies two signatures, of the certificate and of the tree head.
func pairsOfVerifications(d time.Duration) (float64, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return 0, err
	}
	digest := sha256.Sum256([]byte("a certificate"))
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return 0, err
	}
	var pairs atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for range runtime.NumCPU() {
		all.Go(func() {
			for time.Since(begin) < d {
				for range 2 {
					if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
						panic("a valid P-256 signature does not verify")
					}
				}
				pairs.Add(1)
			}
		})
	}
	all.Wait()
	return float64(pairs.Load()) / time.Since(begin).Seconds(), nil
}
