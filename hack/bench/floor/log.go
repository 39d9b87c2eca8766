package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

type signer struct {
	appendURL string
	key       *ecdsa.PrivateKey
	http      *http.Client
}

func newSigner(appendURL string) *signer {
	return &signer{appendURL, newKey(), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func (s *signer) certify(ctx context.Context, c call) error {
	certificate := canon.Encode(map[string]any{
		"deal": c.Deal, "type": "computation-escrow/certificate", "pad": document + document,
		"result": map[string]any{"price": int64(12173335), "winner": "p1"}, "hash": c.Hash,
	})
	digest := sha256.Sum256(certificate)
	signature, err := ecdsa.SignASN1(rand.Reader, s.key, digest[:])
	if err != nil {
		return err
	}
	entry := append(certificate, hex.EncodeToString(signature)...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.appendURL, bytes.NewReader(entry))
	if err != nil {
		return err
	}
	response, err := s.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s answered %s, want 200", s.appendURL, response.Status)
	}
	return nil
}

type merkleLog struct {
	pool *pgxpool.Pool
	key  *ecdsa.PrivateKey

	mu   sync.Mutex
	tree *compact.Range
}

func newLog(pool *pgxpool.Pool) *merkleLog {
	factory := &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	return &merkleLog{pool: pool, key: newKey(), tree: factory.NewEmptyRange(0)}
}

func (l *merkleLog) register(mux *http.ServeMux) {
	together := newGroup(1, l.append)
	mux.HandleFunc("POST /append", func(w http.ResponseWriter, r *http.Request) {
		entry, err := io.ReadAll(r.Body)
		if err == nil {
			err = together.do(entry)
		}
		answer(w, map[string]bool{"appended": true}, err)
	})
}

func (l *merkleLog) append(entries [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var indexes, nodeIndexes []int64
	var levels []int
	var hashes, nodeHashes [][]byte
	for _, entry := range entries {
		hash := rfc6962.DefaultHasher.HashLeaf(entry)
		indexes, hashes = append(indexes, int64(l.tree.End())), append(hashes, hash)
		err := l.tree.Append(hash, func(id compact.NodeID, hash []byte) {
			levels, nodeIndexes = append(levels, int(id.Level)), append(nodeIndexes, int64(id.Index))
			nodeHashes = append(nodeHashes, hash)
		})
		if err != nil {
			return err
		}
	}
	root, err := l.tree.GetRootHash(nil)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(root)
	signature, err := ecdsa.SignASN1(rand.Reader, l.key, digest[:])
	if err != nil {
		return err
	}
	_, err = l.pool.Exec(context.Background(), `
		WITH new_leaves AS (INSERT INTO leaves SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])),
		     new_nodes AS (INSERT INTO nodes SELECT * FROM unnest($4::int[], $5::bigint[], $6::bytea[]))
		UPDATE log_head SET size = $7, root = $8, signature = $9 WHERE id = 1`,
		indexes, hashes, entries, levels, nodeIndexes, nodeHashes, int64(l.tree.End()), root, signature)
	return err
}
