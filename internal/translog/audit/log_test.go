package audit_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/translog/audit"
)

const origin = "log.example/fairpact"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type result[T any] struct {
	value T
	err   error
}

func of[T any](value T, err error) result[T] { return result[T]{value, err} }

func (r result[T]) ok(t testing.TB) T {
	t.Helper()
	check(t, r.err)
	return r.value
}

// operator runs a log in memory and writes its files into folders. It can also fork the log.
type operator struct {
	signer  note.Signer
	key     checkpoint.Key
	entries [][]byte
	hashes  hashes
}

type hashes []tlog.Hash

func (h hashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	all := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		all[i] = h[x]
	}
	return all, nil
}

func newOperator(t testing.TB) *operator {
	t.Helper()
	secret, vkey, err := note.GenerateKey(nil, origin)
	check(t, err)
	signer := of(note.NewSigner(secret)).ok(t)
	key := of(checkpoint.ParseKey(vkey)).ok(t)
	return &operator{signer: signer, key: key}
}

func (o *operator) policy() *checkpoint.Policy {
	return &checkpoint.Policy{Logs: []checkpoint.Key{o.key}}
}

func (o *operator) fork(t testing.TB, keep int) *operator {
	t.Helper()
	other := &operator{signer: o.signer, key: o.key}
	for _, entry := range o.entries[:keep] {
		other.append(t, entry)
	}
	return other
}

func (o *operator) append(t testing.TB, entry []byte) {
	t.Helper()
	stored := of(tlog.StoredHashes(int64(len(o.entries)), entry, o.hashes)).ok(t)
	o.entries, o.hashes = append(o.entries, entry), append(o.hashes, stored...)
}

func (o *operator) grow(t testing.TB, size int, text string) *operator {
	t.Helper()
	for i := len(o.entries); i < size; i++ {
		entry := sha256.Sum256(fmt.Appendf(nil, "%s %d", text, i))
		o.append(t, entry[:])
	}
	return o
}

func (o *operator) signed(t testing.TB) []byte {
	t.Helper()
	size := int64(len(o.entries))
	root := of(tlog.TreeHash(size, o.hashes)).ok(t)
	text := checkpoint.Checkpoint{Origin: origin, Size: size, Root: root}.Text()
	signed := of(note.Sign(&note.Note{Text: text}, o.signer)).ok(t)
	return signed
}

func (o *operator) writeTo(t testing.TB, dir string) {
	t.Helper()
	size := int64(len(o.entries))
	for _, tile := range tlog.NewTiles(checkpoint.TileHeight, 0, size) {
		data := of(tlog.ReadTileData(tile, o.hashes)).ok(t)
		write(t, dir, checkpoint.TilePath(tile), data)
		if tile.L == 0 {
			first := tile.N * checkpoint.TileWidth
			tile.L = -1
			write(t, dir, checkpoint.TilePath(tile), checkpoint.EntryBundle(o.entries[first:first+int64(tile.W)]))
		}
	}
	write(t, dir, "checkpoint", o.signed(t))
}

func (o *operator) folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	o.writeTo(t, dir)
	return dir
}

func write(t testing.TB, dir, path string, data []byte) {
	t.Helper()
	name := filepath.Join(dir, path)
	check(t, os.MkdirAll(filepath.Dir(name), 0o755))
	check(t, os.WriteFile(name, data, 0o644))
}

func read(t testing.TB, dir, path string) []byte {
	t.Helper()
	data := of(os.ReadFile(filepath.Join(dir, path))).ok(t)
	return data
}

func source(t testing.TB, place string) *audit.Source {
	t.Helper()
	s := of(audit.Open(place)).ok(t)
	return s
}

func (o *operator) audit(t testing.TB, place string) error {
	t.Helper()
	s := source(t, place)
	head, err := s.Head(t.Context(), o.policy())
	if err != nil {
		return err
	}
	_, err = audit.Audit(t.Context(), s, head, nil)
	return err
}
