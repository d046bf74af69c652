//go:build !race

package http1

import "testing"

var request = []byte("POST /noop/predict HTTP/1.1\r\nHost: 127.0.0.1:1337\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\nContent-Type: application/json\r\nContent-Length: 24\r\n\r\n{\"input\":[1,2,3,4,5,6,7]")

func parse(p *Parser, in []byte) (ends int) {
	for {
		n, e := p.Next(in, 1)
		in = in[n:]
		switch e.Kind {
		case More, Fail:
			return ends
		case End:
			ends++
			p.Again(1)
		}
	}
}

func TestAllocsOfParsing(t *testing.T) {
	var p Parser
	p.Begin(testLimits(), 0)
	parse(&p, request)
	if n := testing.AllocsPerRun(1000, func() {
		if parse(&p, request) != 1 {
			t.Fatal("not parsed")
		}
	}); n != 0 {
		t.Errorf("%v allocations a request, want none", n)
	}
}

func BenchmarkParse(b *testing.B) {
	var p Parser
	p.Begin(testLimits(), 0)
	b.ReportAllocs()
	b.SetBytes(int64(len(request)))
	for b.Loop() {
		parse(&p, request)
	}
}
