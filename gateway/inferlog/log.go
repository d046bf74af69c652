package inferlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
)

// Config configures the log's location and limits.
type Config struct {
	// Dir is created with mode 0700 if it does not exist.
	Dir string
	// MaxBytes bounds all files of the directory together: at least 8 MiB, 1 GiB if 0. FileBytes bounds one file: at
	// most a quarter of MaxBytes, 64 MiB if 0.
	MaxBytes, FileBytes int64
	// BlockBytes is how much is compressed and written at a time: at most 1 MiB, and 1 MiB if 0. Blocks is the number of
	// blocks, including the one being filled; 16 if 0. A block's memory is allocated when it is first needed.
	BlockBytes, Blocks int
	// Flush is how long a record may wait in memory; 1 s if 0.
	Flush time.Duration
	// Locked is Dir, opened and locked by another process, which goes on writing to it and ends soon; nil: it is locked here.
	Locked *os.File
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log receives a message when the log cannot be written and when it can be again; nil means no logging.
	Log *zap.Logger
}

// Defaults and limits of a Config.
const (
	DefaultMaxBytes   = 1 << 30     //xebec:limit all files of the inference log; `--inference-log-max`
	DefaultFileBytes  = 64 << 20    //xebec:limit one file, or a quarter of all if that is less
	DefaultBlockBytes = 1 << 20     //xebec:limit bytes that are compressed together
	DefaultBlocks     = 16          //xebec:limit blocks that wait for the disk
	DefaultFlush      = time.Second //xebec:limit how long a record stays in memory

	// MinMaxBytes leaves room for several files of the largest frames.
	MinMaxBytes = 8 << 20 //xebec:limit smallest `--inference-log-max`
)

// wakeBlocks is how many sealed blocks wake the writer. A wake-up is a system call on the query path, a switch of threads,
// and a search for work in Go's scheduler. Fewer wake-ups, larger blocks and half the time for compression together took a
// fifth off the log's CPU time for queries of 3 KiB that compress well. The remaining blocks take queries until the writer runs.
const wakeBlocks = 4

// maxFunctions bounds the number of streams that Function remembers. Beyond it, it forgets some, which get a new stream
// when requested again.
const maxFunctions = 1 << 14

func (c Config) withDefaults() (Config, error) {
	set := func(v *int64, otherwise int64) {
		if *v == 0 {
			*v = otherwise
		}
	}
	set(&c.MaxBytes, DefaultMaxBytes)
	set(&c.FileBytes, DefaultFileBytes)
	c.FileBytes = min(c.FileBytes, c.MaxBytes/4)
	if c.BlockBytes == 0 {
		c.BlockBytes = DefaultBlockBytes
	}
	if c.Blocks == 0 {
		c.Blocks = DefaultBlocks
	}
	if c.Flush == 0 {
		c.Flush = DefaultFlush
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	switch {
	case c.Dir == "":
		return c, errors.New("the inference log has no directory")
	case c.MaxBytes < MinMaxBytes:
		return c, fmt.Errorf("the inference log is limited to %d bytes, expected %d or more", c.MaxBytes, MinMaxBytes)
	case c.FileBytes < 0 || c.Flush < 0:
		return c, errors.New("the inference log has a negative bound")
	case c.BlockBytes < 1024 || c.BlockBytes > maxBlockBytes:
		return c, fmt.Errorf("the inference log has blocks of %d bytes, expected 1024 to %d", c.BlockBytes, maxBlockBytes)
	case c.Blocks < 2 || c.Blocks > 1024:
		return c, fmt.Errorf("the inference log has %d blocks, expected 2 to 1024", c.Blocks)
	}
	return c, nil
}

// Log is an inference log that is being written. It is safe for concurrent use.
type Log struct {
	cfg Config
	dir *os.File // held open for its lock

	mu      sync.Mutex
	current *block   // being filled; nil: the next record takes a free one
	sealed  []*block // full blocks, in the order in which they were started; both lists have capacity for all blocks
	free    []*block // last in, first out: the last block's memory is in the cache
	blocks  uint64   // number of blocks started
	closed  bool
	streams map[string]*Stream // by function
	ids     uint64             // number of streams made

	woken   chan struct{} // capacity 1: there are sealed blocks
	flushes chan flush
	stop    chan struct{}
	stopped chan struct{}

	records, feedbacks, rawBytes, writtenBytes atomic.Uint64
	dropped                                    [dropReasons]atomic.Uint64
	files, kept                                atomic.Int64
	failed                                     atomic.Pointer[failure]

	w writer
}

// block holds records on their way to the writer. Room for a record is reserved under the log's mutex and filled
// without it.
type block struct {
	buf                []byte // reserved up to its length: a frame's header and entries
	queries, feedbacks int
	// pending is the number of records that are being copied into buf, plus one while the block is the current one.
	// When the block is sealed and pending is 0, the writer owns it.
	pending atomic.Int32
}

// dropReason is why a record was not logged.
type dropReason int

const (
	dropBusy dropReason = iota
	dropTooLarge
	dropUnfit
	dropWrite
	dropClosed
	dropReasons
)

// failure is why the log could not be written.
type failure struct{ message string }

// Stats are counts since Open. In Dropped, queries and feedback both count as records.
type Stats struct {
	// Records and Feedback are the numbers written to files. RawBytes and WrittenBytes are their size before and after
	// compression.
	Records, Feedback      uint64
	RawBytes, WrittenBytes uint64
	Dropped                Dropped
	// Files and KeptBytes describe the directory.
	Files     int
	KeptBytes int64
	// Unavailable means that the files cannot be written now. LastError is the last failure, empty if there was none.
	Unavailable bool
	LastError   string
}

// Dropped counts records that were not logged, by reason.
type Dropped struct {
	// Busy: the writer was behind. TooLarge: the record is larger than MaxRecordBytes. SchemaMismatch: it does not fit its
	// stream's schema. Write: writing failed. Closed: it came after Close.
	Busy, TooLarge, SchemaMismatch, Write, Closed uint64
}

// Total returns the number of dropped records.
func (d Dropped) Total() uint64 { return d.Busy + d.TooLarge + d.SchemaMismatch + d.Write + d.Closed }

// Open starts to log into a directory. Only one gateway may log into a directory at a time. Files are created when
// there is something to write, so a full disk is not an error here.
func Open(cfg Config) (*Log, error) { return open(cfg, createFile) }

func open(cfg Config, create func(string) (file, error)) (*Log, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	dir := cfg.Locked
	if dir != nil && !isDir(dir, cfg.Dir) {
		dir.Close() // the other process had another directory
		dir = nil
	}
	if dir == nil {
		if dir, err = lockDir(cfg.Dir); err != nil {
			return nil, err
		}
	}
	l := &Log{
		cfg: cfg, dir: dir, streams: map[string]*Stream{},
		sealed: make([]*block, 0, cfg.Blocks), free: make([]*block, cfg.Blocks), woken: make(chan struct{}, 1),
		flushes: make(chan flush), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	for i := range l.free {
		l.free[i] = &block{}
	}
	if err := l.w.init(l, create); err != nil {
		dir.Close()
		return nil, err
	}
	go l.run()
	return l, nil
}

// Dir is the log's directory with its lock, for another process that writes to it too. The caller must not close it.
func (l *Log) Dir() *os.File { return l.dir }

// Close writes what is in memory and ends the log. If ctx ends first, Close returns its error and unwritten records may
// be lost. The writer still stops as soon as the disk permits.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.seal()
	l.mu.Unlock()
	if first {
		close(l.stop)
	}
	select {
	case <-l.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the rest of the inference log in %s was not written in time: %w", l.cfg.Dir, ctx.Err())
	}
}

// flush asks the writer for everything that was added before.
type flush struct {
	done chan struct{}
	next bool // and to end the current file
}

// Flush returns when everything that was added before has been written, or dropped because writing failed; or when ctx
// ends.
func (l *Log) Flush(ctx context.Context) error { return l.flush(ctx, false) }

// Reopen is Flush that also ends the current file: what comes later is in another one. Another program may then move the files
// that there are.
func (l *Log) Reopen(ctx context.Context) error { return l.flush(ctx, true) }

func (l *Log) flush(ctx context.Context, next bool) error {
	l.mu.Lock()
	l.seal()
	l.mu.Unlock()
	done := make(chan struct{})
	select {
	case l.flushes <- flush{done, next}:
	case <-l.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
	case <-l.stopped:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Stats returns the current counts.
func (l *Log) Stats() Stats {
	s := Stats{
		Records: l.records.Load(), Feedback: l.feedbacks.Load(), RawBytes: l.rawBytes.Load(), WrittenBytes: l.writtenBytes.Load(),
		Dropped: Dropped{
			Busy: l.dropped[dropBusy].Load(), TooLarge: l.dropped[dropTooLarge].Load(), SchemaMismatch: l.dropped[dropUnfit].Load(),
			Write: l.dropped[dropWrite].Load(), Closed: l.dropped[dropClosed].Load(),
		},
		Files: int(l.files.Load()), KeptBytes: l.kept.Load(), Unavailable: l.w.away.Load(),
	}
	if f := l.failed.Load(); f != nil {
		s.LastError = f.message
	}
	return s
}

// Stream takes the records of one function with one signature. A nil Stream logs nothing.
type Stream struct {
	log    *Log
	id     uint64
	schema Schema
	// schemaBytes is the size of the encoded schema. threshold is the fraction of hashed ids that are sampled; always
	// is set if sample is 1.
	schemaBytes int
	threshold   uint64
	always      bool
	// seen is the number of the last block that has the schema; guarded by the log's mutex.
	seen uint64
}

// Function returns the stream of a function. It is the same stream until the specs or the sample (from 0 to 1) change.
// Function copies the specs.
func (l *Log) Function(name string, inputs, outputs []api.TensorSpec, sample float64) *Stream {
	if !(sample > 0) { // also if it is NaN
		sample = 0
	}
	schema := Schema{Function: name, Sample: min(sample, 1), Inputs: inputs, Outputs: outputs}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[name]; s != nil && s.schema.equal(&schema) {
		return s
	}
	for other := range l.streams {
		if len(l.streams) < maxFunctions {
			break
		}
		delete(l.streams, other)
	}
	schema.Inputs, schema.Outputs = cloneSpecs(inputs), cloneSpecs(outputs)
	l.ids++
	s := &Stream{log: l, id: l.ids, schema: schema, always: sample >= 1}
	s.schemaBytes = len(appendSchema(nil, s.id, &s.schema))
	if sample > 0 && sample < 1 {
		s.threshold = uint64(math.Ldexp(sample, 64))
	}
	l.streams[name] = s
	return s
}

func cloneSpecs(specs []api.TensorSpec) []api.TensorSpec {
	specs = slices.Clone(specs)
	for i := range specs {
		specs[i].Shape = slices.Clone(specs[i].Shape)
	}
	return specs
}

// Sampled reports whether to log a query and its feedback. The answer depends only on the id and the sample, and a
// larger sample includes every smaller one.
func (s *Stream) Sampled(queryID uint64) bool {
	return s != nil && (s.always || mix(queryID) < s.threshold)
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Ids are consecutive; their hashes are as
// good as random.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Add logs a query. It copies what it needs, and neither waits nor fails: if there is no room, the record is dropped
// and counted. The caller checks Sampled.
func (s *Stream) Add(r *Record) {
	if s == nil {
		return
	}
	l := s.log
	if len(r.Inputs) != len(s.schema.Inputs) || len(r.Outputs) != 0 && len(r.Outputs) != len(s.schema.Outputs) || len(r.Models) > maxModels {
		l.dropped[dropUnfit].Add(1)
		return
	}
	if b, room := s.reserve(entryQuery, r.size(s.id)); b != nil {
		appendRecord(room, s.id, r)
		l.filled(b)
	}
}

// Feedback logs feedback on a query that was [Stream.Sampled], like Add.
func (s *Stream) Feedback(f *Feedback) {
	if s == nil {
		return
	}
	l := s.log
	if f.Kind < FeedbackLabel || f.Kind > FeedbackLoss {
		l.dropped[dropUnfit].Add(1)
		return
	}
	if b, room := s.reserve(entryFeedback, f.size(s.id)); b != nil {
		appendFeedback(room, s.id, f)
		l.filled(b)
	}
}

// reserve returns an empty slice with capacity for an entry of size bytes, in a block that has the stream's schema. The
// caller encodes the entry into it and calls filled. If b is nil, the record has been counted as dropped.
func (s *Stream) reserve(kind byte, size int) (b *block, room []byte) {
	l := s.log
	if size+s.schemaBytes > MaxRecordBytes {
		l.dropped[dropTooLarge].Add(1)
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.dropped[dropClosed].Add(1)
		return nil, nil
	}
	need := size
	if s.seen != l.blocks {
		need += s.schemaBytes
	}
	if l.current != nil && len(l.current.buf)-frameHeaderBytes+need > l.cfg.BlockBytes {
		l.seal()
	}
	if l.current == nil {
		if !l.begin(size + s.schemaBytes) {
			l.dropped[dropBusy].Add(1)
			return nil, nil
		}
	}
	b = l.current
	if s.seen != l.blocks {
		b.buf = appendSchema(b.buf, s.id, &s.schema)
		s.seen = l.blocks
	}
	at := len(b.buf)
	b.buf = b.buf[:at+size]
	b.pending.Add(1)
	if kind == entryQuery {
		b.queries++
	} else {
		b.feedbacks++
	}
	return b, b.buf[at : at : at+size]
}

// begin makes a free block with room for need bytes the current one. It returns false if there is none. The caller
// holds the mutex.
func (l *Log) begin(need int) bool {
	last := len(l.free) - 1
	if last < 0 {
		return false
	}
	b := l.free[last]
	l.free = l.free[:last]
	if need = frameHeaderBytes + max(need, l.cfg.BlockBytes); cap(b.buf) < need {
		b.buf = make([]byte, 0, need)
	}
	b.buf = b.buf[:frameHeaderBytes]
	b.pending.Store(1)
	l.current = b
	l.blocks++
	return true
}

// seal passes the current block to the writer, which takes it when all reserved room in it is filled. The caller holds
// the mutex.
func (l *Log) seal() {
	if l.current == nil {
		return
	}
	l.sealed = append(l.sealed, l.current)
	l.current.pending.Add(-1)
	l.current = nil
	if len(l.sealed) >= min(wakeBlocks, l.cfg.Blocks/2) {
		l.wake()
	}
}

// filled reports that a reserved entry has been encoded. The last entry of a sealed block wakes the writer, which may
// have looked too early.
func (l *Log) filled(b *block) {
	if b.pending.Add(-1) == 0 {
		l.wake()
	}
}

// wake makes the writer check the sealed blocks.
func (l *Log) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}
