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

// checkpointPoll is the time between two reads of the checkpoint while callers wait. It is
// much shorter than tesseraIntervals, so that it adds little to the latency.
const checkpointPoll = 10 * time.Millisecond

// tesseraIntervals are the default checkpoint interval and the shortest that the POSIX driver accepts.
var tesseraIntervals = []time.Duration{tessera.DefaultCheckpointInterval, 100 * time.Millisecond}

// tessera measures Tessera once at each of tesseraIntervals. One measurement is enough, because a
// caller waits about one interval on any machine.
func (b *bench) tessera() error {
	for _, interval := range tesseraIntervals {
		say("Tessera with a checkpoint every %s", interval)
		t, err := b.appendTessera(interval, max(2*interval, b.measureFor))
		if err != nil {
			return err
		}
		b.samples.addLoad(tesseraName(interval), t)
	}
	return nil
}

func tesseraName(interval time.Duration) string { return "tessera." + interval.String() }

// appendTessera appends to a Tessera log from 64 callers in this process, without HTTP. The log
// uses the POSIX driver. All options have their defaults, except the interval and the signer.
// Each caller waits until a published checkpoint covers the new entry.
func (b *bench) appendTessera(interval, d time.Duration) (t *timed, err error) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // otherwise Tessera logs every start and stop to stderr
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
