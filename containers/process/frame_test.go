package process

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFrames(t *testing.T) {
	q := request{
		Op: opLaunch, ID: 7, Path: []byte("/models/\xff/serve"), Argv: [][]byte{[]byte("serve"), []byte(""), []byte("\xfe")}, Dir: []byte("/models"),
		Env: [][]byte{[]byte("A=1")}, Marker: "n-7", OpenFiles: 5, DataBytes: 1 << 40, Quiet: true,
	}
	frame, err := appendFrame(nil, q)
	if err != nil {
		t.Fatal(err)
	}
	n, err := frameLen([frameHeaderBytes]byte(frame))
	if err != nil || n != len(frame)-frameHeaderBytes {
		t.Fatalf("length %d, %v", n, err)
	}
	got, err := decodeRequest(frame[frameHeaderBytes:])
	if err != nil || !cmp.Equal(got, q) {
		t.Errorf("request %+v, %v; expected %+v", got, err, q)
	}
	if _, err := appendFrame(nil, request{Path: bytes.Repeat([]byte("x"), maxFrameBytes)}); err == nil {
		t.Error("a frame over the limit was accepted")
	}
	for _, header := range [][frameHeaderBytes]byte{{}, {0xff, 0xff, 0xff, 0xff}, {1, 0, 0x40, 0}} {
		if n, err := frameLen(header); err == nil {
			t.Errorf("header %x was accepted as %d bytes", header, n)
		}
	}
}

func TestDecodeAdopt(t *testing.T) {
	for body, ok := range map[string]bool{
		`{"op":"adopt","id":1,"pid":5,"marker":"n-1"}`:  true,
		`{"op":"adopt","id":1,"pid":0,"marker":"n-1"}`:  false,
		`{"op":"adopt","id":1,"pid":-5,"marker":"n-1"}`: false,
		`{"op":"adopt","id":1,"pid":5}`:                 false,
	} {
		if q, err := decodeRequest([]byte(body)); (err == nil) != ok {
			t.Errorf("%s: request %+v, error %v", body, q, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		if q, err := decodeRequest(body); err == nil {
			if q.Op == opLaunch && (len(q.Path) == 0 || len(q.Argv) == 0 || q.Marker == "") || q.Op == opAdopt && (q.PID <= 0 || q.Marker == "") ||
				q.Op != opLaunch && q.Op != opAdopt && q.Op != opSignal && q.Op != opRaise {
				t.Errorf("invalid request %+v was accepted", q)
			}
			again, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			if q2, err := decodeRequest(again); err != nil || q2.ID != q.ID || !bytes.Equal(q2.Path, q.Path) || len(q2.Env) != len(q.Env) {
				t.Errorf("%+v was decoded again as %+v, %v", q, q2, err)
			}
		}
		if p, err := decodeReply(body); err == nil && p.Op == opStarted && p.PID <= 0 {
			t.Errorf("invalid reply %+v was accepted", p)
		}
	})
}
