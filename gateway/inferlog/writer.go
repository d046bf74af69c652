package inferlog

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"
)

// retryAfter is the pause after a failed write.
const retryAfter = 3 * time.Second

// writer writes blocks to files. All of it except away belongs to the goroutine of [Log.run].
type writer struct {
	log     *Log
	create  func(path string) (file, error)
	encoder *zstd.Encoder
	budget  compressionBudget
	frame   []byte // memory for a compressed block's frame

	file      file // nil if none is open
	path      string
	size      int64
	older     int64 // bytes of the other files
	lastBegun time.Time
	number    uint64

	away  atomic.Bool
	since time.Time // time of the last failure
}

func (w *writer) init(l *Log, create func(string) (file, error)) error {
	encoder, err := newEncoder()
	if err != nil {
		return fmt.Errorf("cannot start the inference log's compressor: %w", err)
	}
	files, err := listFiles(l.cfg.Dir)
	if err != nil {
		return fmt.Errorf("cannot read the inference log's directory: %w", err)
	}
	w.log, w.create, w.encoder = l, create, encoder
	w.budget.begin(l.cfg.Now(), runtime.GOMAXPROCS(0))
	w.count(files)
	return nil
}

// count records the files in the directory, while no file is open.
func (w *writer) count(files []logFile) {
	w.older = 0
	for _, f := range files {
		w.older += f.bytes
		w.number = max(w.number, f.number)
		if f.begun.After(w.lastBegun) {
			w.lastBegun = f.begun
		}
	}
	w.log.files.Store(int64(len(files)))
	w.log.kept.Store(w.older)
}

// run is the writer's goroutine.
func (l *Log) run() {
	defer close(l.stopped)
	defer l.dir.Close()
	tick := time.NewTicker(l.cfg.Flush)
	defer tick.Stop()
	for {
		select {
		case <-l.woken:
			l.writeFilled()
		case <-tick.C:
			l.mu.Lock()
			l.seal()
			l.mu.Unlock()
			l.writeFilled()
		case f := <-l.flushes:
			l.writeSealed()
			if f.next {
				l.w.end()
			}
			close(f.done)
		case <-l.stop:
			l.writeSealed()
			l.w.end()
			return
		}
	}
}

// writeFilled writes the sealed blocks up to the first one that is still being filled. The last entry of that block
// wakes the writer again.
func (l *Log) writeFilled() {
	for b := l.take(); b != nil; b = l.take() {
		l.w.write(b)
	}
}

// writeSealed writes the blocks that are sealed now, and waits for those that are still being filled.
func (l *Log) writeSealed() {
	l.mu.Lock()
	n := len(l.sealed)
	l.mu.Unlock()
	for n > 0 {
		b := l.take()
		if b == nil {
			<-l.woken
			continue
		}
		l.w.write(b)
		n--
	}
}

// take returns the oldest sealed block, or nil if there is none or it is still being filled.
func (l *Log) take() *block {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sealed) == 0 || l.sealed[0].pending.Load() > 0 {
		return nil
	}
	b := l.sealed[0]
	l.sealed = slices.Delete(l.sealed, 0, 1)
	return b
}

// write writes a block as one frame and frees the block. If writing fails, its records are dropped.
func (w *writer) write(b *block) {
	l := w.log
	if err := w.append(b.buf); err != nil {
		l.dropped[dropWrite].Add(uint64(b.queries + b.feedbacks))
	} else {
		l.records.Add(uint64(b.queries))
		l.feedbacks.Add(uint64(b.feedbacks))
		l.rawBytes.Add(uint64(len(b.buf) - frameHeaderBytes))
	}
	b.buf, b.queries, b.feedbacks = b.buf[:0], 0, 0
	l.mu.Lock()
	l.free = append(l.free, b)
	l.mu.Unlock()
}

// errAway is the error of writes during the pause after a failure.
var errAway = fmt.Errorf("a write failed less than %s ago", retryAfter)

// append writes the entries of a block as one frame. text starts with room for the frame's header.
func (w *writer) append(text []byte) error {
	now := w.log.cfg.Now()
	if w.away.Load() && now.Sub(w.since) < retryAfter && !now.Before(w.since) {
		return errAway
	}
	frame := w.encode(now, text)
	n := int64(len(frame))
	if w.file != nil && w.size+n > w.log.cfg.FileBytes {
		w.end()
	}
	if w.file == nil {
		if err := w.begin(now, n); err != nil {
			return w.fail(now, err)
		}
	}
	wrote, err := w.file.Write(frame)
	if err != nil {
		w.abandon(wrote > 0)
		return w.fail(now, err)
	}
	w.size += n
	w.log.writtenBytes.Add(uint64(n))
	w.log.kept.Store(w.older + w.size)
	if w.away.CompareAndSwap(true, false) {
		lost := w.log.dropped[dropWrite].Load()
		w.log.cfg.Log.Info("the inference log is being written again", zap.String("dir", w.log.cfg.Dir), zap.Uint64("records_lost", lost))
	}
	return nil
}

// begin opens a new file for a frame of n bytes, after removing old files to make room.
func (w *writer) begin(now time.Time, n int64) error {
	dir := w.log.cfg.Dir
	files, err := listFiles(dir)
	if err != nil {
		return err
	}
	files, err = makeRoom(dir, files, w.log.cfg.MaxBytes, max(w.log.cfg.FileBytes, fileHeaderBytes+n))
	w.count(files)
	if err != nil {
		return err
	}
	begun := now.UTC().Truncate(time.Microsecond)
	if !begun.After(w.lastBegun) { // the clock was set back: names must sort in the order of writing
		begun = w.lastBegun.Add(time.Microsecond)
	}
	w.number++
	w.path = filepath.Join(dir, fileName(begun, w.number))
	if w.file, err = w.create(w.path); err != nil {
		w.file = nil
		return err
	}
	w.size, w.lastBegun = 0, begun
	w.log.files.Add(1)
	head := appendFileHeader(nil, begun.UnixMicro())
	if wrote, err := w.file.Write(head); err != nil {
		w.abandon(wrote > 0)
		return err
	}
	w.size = int64(len(head))
	w.log.writtenBytes.Add(uint64(len(head)))
	return nil
}

// abandon closes a file after a failed write. torn means that part of a frame is at its end, which is truncated. If
// truncation fails too, the file is still readable, with a note.
func (w *writer) abandon(torn bool) {
	if torn {
		_ = w.file.Truncate(w.size) // a reader skips the torn frame if this fails
	}
	_ = w.file.Close()             // the failed write has been reported
	if w.size <= fileHeaderBytes { // empty: a disk that stays full must not collect empty files
		if os.Remove(w.path) == nil {
			w.log.files.Add(-1)
			w.size = 0
		}
	}
	w.older += w.size
	w.file, w.size = nil, 0
	w.log.kept.Store(w.older)
}

// end closes the current file after a complete frame.
func (w *writer) end() {
	if w.file == nil {
		return
	}
	if err := w.file.Close(); err != nil {
		_ = w.fail(w.log.cfg.Now(), err)
	}
	w.older += w.size
	w.file, w.size = nil, 0
}

// fail records that the log cannot be written, and logs it the first time.
func (w *writer) fail(now time.Time, err error) error {
	l := w.log
	err = fmt.Errorf("cannot write the inference log in %s: %w", l.cfg.Dir, err)
	l.failed.Store(&failure{err.Error()})
	w.since = now
	if w.away.CompareAndSwap(false, true) {
		l.cfg.Log.Warn("cannot write the inference log: queries are served but not logged; free space on its disk or check its directory",
			zap.String("dir", l.cfg.Dir), zap.Error(err))
	}
	return err
}
