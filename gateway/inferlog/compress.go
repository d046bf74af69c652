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

// encode makes the frame of the entries in text, which has room for a header in front of them. The frame is valid until the next call, or
// until text is changed.
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

// What compression may cost, and what it has to bring.
const (
	// zstdShare and s2Share are the parts of all processors' time that each may take: together a quarter of the tenth that a log of
	// every query may cost. A quiet log is within the first, and gets the better of the two.
	zstdShare = 0.005
	s2Share   = 0.02
	// maxCredit is how much of that can be saved up: quiet seconds pay for a burst.
	maxCredit = 20 * time.Millisecond
	// writePicos is what a byte costs that is written: what a file of the page cache takes, at 3.3 GB/s. To make a block small faster
	// than that is free.
	writePicos = 300
	// worthBytes is the part of a block, one in so many, by which it has to get smaller; when it does not, up to maxPassed blocks are
	// stored before the next one is tried.
	minSavingShare = 16
	maxSkipped     = 32
)

// thrift says how blocks are stored: compressed while there is time for it, and of data that does not get smaller (embeddings, pictures
// that are compressed already) one now and then. The package's essay has the costs and a worked number.
type compressionBudget struct {
	zstd, s2      allowance
	last          time.Time // when the purses were filled
	skip, skipped int       // how many blocks are stored before the next one is tried, and how many have been
}

// purse is time that may be spent.
type allowance struct {
	share  float64       // of one processor
	credit time.Duration // below 0: owed
}

func (p *allowance) fill(since time.Duration) {
	p.credit = min(maxCredit, p.credit+time.Duration(p.share*float64(since)))
}

// begin starts with full purses. One goroutine compresses, and so one processor is all that it can take.
func (t *compressionBudget) begin(now time.Time, processors int) {
	*t = compressionBudget{
		zstd: allowance{min(0.2, zstdShare*float64(processors)), maxCredit}, s2: allowance{min(0.8, s2Share*float64(processors)), maxCredit}, last: now,
	}
}

// choose returns the kind of the next block's frame; if that is compressed, a call of compressed follows.
func (t *compressionBudget) choose(now time.Time) byte {
	if since := now.Sub(t.last); since > 0 { // a clock that is set back gives nothing
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

// compressed notes how long a block took, and what it has become.
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
