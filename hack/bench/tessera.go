package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
	"k8s.io/klog/v2"
)

// checkpointPoll is the time between two reads of the checkpoint by a waiting caller. It is
// much shorter than the interval between two checkpoints.
const checkpointPoll = 10 * time.Millisecond

// tesseraIntervals are the checkpoint intervals at which Tessera is measured: its default,
// and the shortest that its POSIX driver accepts.
var tesseraIntervals = []time.Duration{tessera.DefaultCheckpointInterval, 100 * time.Millisecond}

// tessera measures Tessera once at each of tesseraIntervals, for two intervals or
// longer. A caller waits about one interval on any machine, so once is enough.
func (b *bench) tessera() error {
	for _, interval := range tesseraIntervals {
		say("Tessera with a checkpoint each %s", interval)
		t, err := b.appendTessera(interval, max(2*interval, b.seconds))
		if err != nil {
			return err
		}
		b.samples.addLoad(tesseraName(interval), t)
	}
	return nil
}

func tesseraName(interval time.Duration) string { return "tessera." + interval.String() }

// appendTessera appends to a log of Tessera from 64 callers in this process, without
// HTTP. The log has the POSIX driver and default options except the interval. Each
// caller waits until a published checkpoint covers its entry.
func (b *bench) appendTessera(interval, d time.Duration) (t *timed, err error) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // Tessera logs every start and stop
	dir, err := os.MkdirTemp(b.dir, "tessera-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	private, _, err := note.GenerateKey(rand.Reader, "fairpact-bench")
	if err != nil {
		return nil, err
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	driver, err := posix.New(ctx, posix.Config{Path: filepath.Join(dir, "log")})
	if err != nil {
		return nil, err
	}
	appender, shutdown, reader, err := tessera.NewAppender(ctx, driver, tessera.NewAppendOptions().WithCheckpointInterval(interval).WithCheckpointSigner(signer))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shutdown(ctx)) }()
	awaiter := tessera.NewPublicationAwaiter(ctx, reader.ReadCheckpoint, checkpointPoll)
	return b.load(maxWorkers, d, func(_ int, note func(string, time.Duration)) error {
		data := make([]byte, 32)
		rand.Read(data)
		begin := time.Now()
		_, _, err := awaiter.Await(ctx, appender.Add(ctx, tessera.NewEntry(data)))
		note("append", time.Since(begin))
		return err
	})
}
