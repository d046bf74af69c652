package inferlog

import (
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(maxBlockBytes), zstd.WithLowerEncoderMem(true))
}

// encode returns the frame of the entries in text, which starts with room for a header. The frame is valid until the
// next call, or until text changes.
func (w *writer) encode(now time.Time, text []byte) []byte {
	raw := text[frameHeaderBytes:]
	kind := w.budget.choose(now)
	if kind != frameStored {
		began := w.log.cfg.Now()
		if need := frameHeaderBytes + maxStored(len(raw)); cap(w.frame) < need {
			w.frame = make([]byte, need)
		}
		stored := w.frame[frameHeaderBytes:cap(w.frame)]
		if kind == frameZstd {
			stored = w.encoder.EncodeAll(raw, stored[:0])
		} else {
			stored = s2.Encode(stored, raw)
		}
		w.budget.compressed(kind, w.log.cfg.Now().Sub(began), len(raw), len(stored))
		if len(stored) < len(raw) {
			frame := w.frame[:frameHeaderBytes+len(stored)]
			putFrameHeader(frame, kind, stored, len(raw))
			return frame
		}
	}
	putFrameHeader(text, frameStored, raw, len(raw))
	return text
}

// Limits of the cost of compression, and of its least benefit.
const (
	// zstdShare and s2Share are the shares of all processors' time that the compressions may use: together a quarter of
	// the 5 % that a log of every query may cost. A log with little traffic stays within the first, and gets the
	// better compression.
	zstdShare = 0.0025
	s2Share   = 0.01
	// maxCredit is how much of that can be saved up: quiet seconds pay for a burst.
	maxCredit = 20 * time.Millisecond
	// writePicos is the cost of writing a byte, in picoseconds: that of a file in the page cache, at 3.3 GB/s.
	// Compression that is faster than this is free.
	writePicos = 300
	// minSavingShare: a block must shrink by more than 1/minSavingShare. If it does not, up to maxSkipped blocks are
	// stored before the next one is tried.
	minSavingShare = 16
	maxSkipped     = 32
)

// compressionBudget decides how blocks are stored. They are compressed while there is time for it. Of data that does
// not shrink (embeddings, compressed pictures) only an occasional block is tried. The package comment has the costs and
// an example.
type compressionBudget struct {
	zstd, s2      allowance
	last          time.Time // when credit was last added
	skip, skipped int       // how many blocks are stored before the next one is tried, and how many have been
}

// allowance is time that may be spent.
type allowance struct {
	share  float64       // of one processor
	credit time.Duration // negative: overdrawn
}

func (p *allowance) fill(since time.Duration) {
	p.credit = min(maxCredit, p.credit+time.Duration(p.share*float64(since)))
}

// begin starts with full allowances. One goroutine compresses, so it can use at most one processor.
func (t *compressionBudget) begin(now time.Time, processors int) {
	*t = compressionBudget{
		zstd: allowance{min(0.2, zstdShare*float64(processors)), maxCredit}, s2: allowance{min(0.8, s2Share*float64(processors)), maxCredit}, last: now,
	}
}

// choose returns the kind of the next block's frame. If the kind is compressed, the caller must call compressed next.
func (t *compressionBudget) choose(now time.Time) byte {
	if since := now.Sub(t.last); since > 0 { // a clock that is set back adds nothing
		since = min(since, time.Minute)
		t.zstd.fill(since)
		t.s2.fill(since)
	}
	t.last = now
	kind := byte(frameZstd)
	if t.zstd.credit <= 0 {
		kind = frameS2
		if t.s2.credit <= 0 {
			return frameStored
		}
	}
	if t.skipped < t.skip {
		t.skipped++
		return frameStored
	}
	t.skipped = 0
	return kind
}

// compressed records the time that a block took and its size.
func (t *compressionBudget) compressed(kind byte, took time.Duration, rawBytes, storedBytes int) {
	saved := rawBytes - storedBytes
	if kind == frameZstd {
		t.zstd.credit -= took
	} else {
		t.s2.credit -= max(0, took-time.Duration(saved*writePicos/1000))
	}
	if saved > rawBytes/minSavingShare {
		t.skip = 0
	} else {
		t.skip = min(maxSkipped, 2*t.skip+1)
	}
}
