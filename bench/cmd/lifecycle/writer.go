package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// minWriterRate is the share of its rate that the bare writer must reach. Below it, it says nothing about the log.
const minWriterRate = 0.9

// beside returns the results of run, which takes place beside a bare writer of rate bytes a second.
func beside(ctx context.Context, dir string, rate float64, run func() (rps float64, failed uint64, err error)) (rps float64, failed uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wrote := make(chan error, 1)
	go func() { wrote <- writeAt(ctx, dir, rate) }()
	rps, failed, err = run()
	cancel()
	return rps, failed, errors.Join(err, <-wrote)
}

// writeAt writes rate bytes a second to files in dir until ctx ends, and removes dir. This is the part of an inference log
// that no log can do without. It fails if it was slower than the rate.
func writeAt(ctx context.Context, dir string, rate float64) (err error) {
	if !(rate > 0) {
		return fmt.Errorf("a bare writer of %v bytes/s", rate)
	}
	w := bareWriter{dir: dir, block: make([]byte, inferlog.DefaultBlockBytes)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(), os.RemoveAll(dir)) }()
	_, _ = rand.Read(w.block) // never fails
	began := time.Now()
	ticks := time.NewTicker(max(time.Millisecond, time.Duration(float64(len(w.block))/rate*float64(time.Second))))
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			if got := float64(w.written) / time.Since(began).Seconds(); got < rate*minWriterRate {
				return fmt.Errorf("the bare writer reached %.0f of %.0f bytes/s", got, rate)
			}
			return nil
		}
		for ctx.Err() == nil && float64(w.written) < rate*time.Since(began).Seconds() {
			if err := w.write(); err != nil {
				return err
			}
		}
	}
}

// bareWriter writes the same block again and again, to files of the inference log's sizes. All files together have at most
// the log's size.
type bareWriter struct {
	dir     string
	block   []byte
	file    *os.File
	written int64
}

func (w *bareWriter) name(number int64) string { return filepath.Join(w.dir, fmt.Sprint(number)) }

func (w *bareWriter) write() error {
	if w.written%inferlog.DefaultFileBytes == 0 {
		if err := w.close(); err != nil {
			return err
		}
		number := w.written / inferlog.DefaultFileBytes
		if old := number - inferlog.DefaultMaxBytes/inferlog.DefaultFileBytes; old >= 0 {
			if err := os.Remove(w.name(old)); err != nil {
				return err
			}
		}
		var err error
		if w.file, err = os.Create(w.name(number)); err != nil {
			return err
		}
	}
	n, err := w.file.Write(w.block)
	w.written += int64(n)
	return err
}

func (w *bareWriter) close() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return f.Close()
}
