package meter

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/http2"

	"github.com/xebec-serving/xebec/api"
)

const second = api.Nanos(1e9)

// message is the beginning of a message of so many bytes.
func message(length, sent int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), make([]byte, sent)...)
}

// client writes frames as a client does.
func client(t *testing.T, write func(f *http2.Framer)) []byte {
	t.Helper()
	var b bytes.Buffer
	write(http2.NewFramer(&b, nil))
	return b.Bytes()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, ids ...uint32) []byte {
	return client(t, func(f *http2.Framer) {
		for _, id := range ids {
			check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("abc"), EndHeaders: true}))
		}
	})
}

func TestHeld(t *testing.T) {
	frames := client(t, func(f *http2.Framer) {
		check(t, f.WriteSettings())
		for id := uint32(1); id < 11; id += 2 {
			check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("abc"), EndHeaders: true}))
		}
		check(t, f.WriteData(11, false, message(100, 40))) // was never opened
		check(t, f.WriteData(1, false, message(100, 40)))
		check(t, f.WriteDataPadded(3, false, message(10, 10), make([]byte, 7))) // complete
		check(t, f.WriteDataPadded(3, false, message(10, 2), make([]byte, 7)))
		check(t, f.WriteData(5, true, message(100, 40))) // broken off
		check(t, f.WriteData(7, false, message(100, 40)))
		check(t, f.WriteRSTStream(7, http2.ErrCodeCancel))
		check(t, f.WritePing(false, [8]byte{}))
		check(t, f.WriteData(9, false, append(message(0, 0), message(1, 0)...)))
	})
	frames = append(make([]byte, Preface), frames...)
	for _, step := range []int{len(frames), 1, 2, 3, 7, 11} { // in any parts
		m := New()
		for rest := frames; len(rest) > 0; {
			n := min(step, len(rest))
			m.In(rest[:n])
			rest = rest[n:]
		}
		if m.Held() != 45+7+5 || m.Begun() != 3 {
			t.Fatalf("in parts of %d: %d bytes of %d messages", step, m.Held(), m.Begun())
		}
		m.In(client(t, func(f *http2.Framer) { check(t, f.WriteData(1, false, make([]byte, 60))) }))
		if m.Held() != 12 {
			t.Errorf("%d bytes are held after the message is complete", m.Held())
		}
		for _, out := range [][]byte{
			client(t, func(f *http2.Framer) {
				check(t, f.WriteData(3, false, []byte("answer")))
				check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte("x"), EndHeaders: true, EndStream: true}))
			}),
			client(t, func(f *http2.Framer) { check(t, f.WriteRSTStream(9, http2.ErrCodeNo)) }),
		} {
			m.Out(out[:4])
			m.Out(out[4:])
		}
		if m.Held() != 0 || m.Begun() != 0 {
			t.Errorf("%d bytes of %d streams are held after the gateway has ended them", m.Held(), m.Begun())
		}
	}
}

func TestLate(t *testing.T) {
	l := Limits{MinRate: 1000, Grace: 10 * second}
	m := New()
	m.In(append(make([]byte, Preface), open(t, 1, 3)...))
	send := func(n int) {
		m.In(client(t, func(f *http2.Framer) { check(t, f.WriteData(1, false, make([]byte, n))) }))
	}
	late := func(now api.Nanos) []Slow { return m.Late(nil, now, l) }
	if m.Last() != 3 || !m.Attach(1, "one") || !m.Attach(3, "three") || m.Attach(5, "five") || m.Begins(1) || !m.Begins(5) {
		t.Fatal("the open streams are others than 1 and 3")
	}
	m.In(client(t, func(f *http2.Framer) { check(t, f.WriteData(1, false, message(1<<20, 0))) }))
	if !m.Begins(1) || m.Begins(3) {
		t.Error("the message of 1 has not begun, or that of 3 has")
	}
	for now := api.Nanos(0); now < 60*second; now += second { // at the rate
		if got := late(now); got != nil {
			t.Fatalf("late after %d s at the lowest rate: %v", now/second, got)
		}
		send(1000)
	}
	for now := 60 * second; now <= 69*second; now += second { // silence
		if got := late(now); got != nil {
			t.Fatalf("late after %d s: %v", now/second, got)
		}
	}
	if got := m.Late(nil, 1000*second, Limits{}); got != nil {
		t.Errorf("late without a rate: %v", got)
	}
	if got, want := late(72*second), []Slow{{"one", 60_000, 1 << 20, false}}; !slices.Equal(got, want) {
		t.Errorf("late is %v, want %v", got, want)
	}
	for range 30 { // another stream's bytes do not help
		m.In(client(t, func(f *http2.Framer) { check(t, f.WriteData(3, false, message(1000, 1000))) }))
	}
	if got := late(73 * second); got != nil {
		t.Errorf("reported again at once: %v", got)
	}
	if got, want := late(83*second), []Slow{{"one", 60_000, 1 << 20, true}}; !slices.Equal(got, want) {
		t.Errorf("late is %v, want %v", got, want)
	}
	m.In(client(t, func(f *http2.Framer) { check(t, f.WriteData(3, false, []byte{0, 0})) }))
	m.In(client(t, func(f *http2.Framer) { check(t, f.WriteRSTStream(1, http2.ErrCodeCancel)) }))
	late(84 * second)
	if got, want := late(95*second), []Slow{{"three", 0, 0, false}}; !slices.Equal(got, want) {
		t.Errorf("late is %v, want %v", got, want)
	}
}

func TestManyStreams(t *testing.T) {
	m := New()
	m.In(make([]byte, Preface))
	for id := uint32(1); id < 2001; id += 2 {
		m.In(open(t, id))
		m.In(client(t, func(f *http2.Framer) { check(t, f.WriteData(id, true, message(10, 10))) }))
	}
	if m.Held() != 0 || len(m.streams) != 0 || len(m.free) > 4 {
		t.Errorf("%d bytes, %d streams, %d free", m.Held(), len(m.streams), len(m.free))
	}
	for id := uint32(4001); id < 4001+4*maxStreams; id += 2 {
		m.In(open(t, id))
	}
	if len(m.streams) != maxStreams {
		t.Errorf("%d streams are remembered", len(m.streams))
	}
}

// FuzzMeter: whatever comes, in whatever parts, what is held is what the streams hold, and no more than has come.
func FuzzMeter(f *testing.F) {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc"), EndHeaders: true})
	_ = w.WriteDataPadded(1, false, message(10, 2), make([]byte, 3))
	_ = w.WriteData(1, true, message(10, 2))
	f.Add(b.Bytes(), []byte{}, 3)
	f.Add([]byte{0, 0, 1, 0, 8, 0, 0, 0, 1, 255}, []byte{0, 0, 0, 1, 1, 0, 0, 0, 1}, 1)
	f.Fuzz(func(t *testing.T, in, out []byte, step int) {
		step = max(1, step)
		m := New()
		m.In(make([]byte, Preface))
		for rest := in; len(rest) > 0; {
			n := min(step, len(rest))
			m.In(rest[:n])
			rest = rest[n:]
		}
		whole := New()
		whole.In(append(make([]byte, Preface), in...))
		if m.Held() != whole.Held() || m.Begun() != whole.Begun() {
			t.Fatalf("in parts %d bytes of %d streams, as a whole %d of %d", m.Held(), m.Begun(), whole.Held(), whole.Begun())
		}
		m.Out(out)
		m.Late(nil, 1, Limits{1, 1})
		total := 0
		for _, s := range m.streams {
			total += s.held
		}
		if total != m.Held() || total > len(in) {
			t.Fatalf("%d bytes are held, the streams hold %d of %d", m.Held(), total, len(in))
		}
	})
}
