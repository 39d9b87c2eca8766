package service

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

// followEvery is the pause between two reads of a file. Reading is simpler than a notification: in a
// pod the path is a chain of links, of which Kubernetes replaces one.
const followEvery = 5 * time.Second

var unused = telemetry.NewGaugeVec("fairpact_file_unused",
	"1 while a changed file is not usable, so that this process keeps the former content. setting is the variable that names the file.", "setting")

// File is a file that a process takes over again when it changes, such as a mounted Secret.
type File struct {
	Setting string // the variable that holds the path
	Path    string

	// Use takes over a content. It returns false if the process has it already. After an error the
	// process keeps the former content, and Follow tries again.
	Use func(ctx context.Context, content []byte) (changed bool, err error)

	seen    []byte // what Use accepted last
	problem string // the last error that was logged
}

// Follow reads the files until ctx ends. It calls `changed` after each change.
func Follow(ctx context.Context, logger *slog.Logger, changed func(), files ...File) {
	for {
		for i := range files {
			if files[i].read(ctx, logger) {
				changed()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followEvery):
		}
	}
}

func (f *File) read(ctx context.Context, logger *slog.Logger) (changed bool) {
	content, err := os.ReadFile(f.Path)
	if err == nil && f.seen != nil && bytes.Equal(content, f.seen) {
		f.accepted()
		return false
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		changed, err = f.Use(ctx, content)
	}
	switch {
	case err == nil:
		f.seen = content
		f.accepted()
		if changed {
			logger.Info("file reloaded", "setting", f.Setting)
		}
	case ctx.Err() == nil && err.Error() != f.problem:
		f.problem = err.Error()
		unused.WithLabelValues(f.Setting).Set(1)
		logger.Error("changed file not usable, the former content stays in use", "setting", f.Setting, "err", err)
	}
	return changed && err == nil
}

func (f *File) accepted() {
	f.problem = ""
	unused.WithLabelValues(f.Setting).Set(0)
}
