package shm

import (
	"os"
	"os/exec"
	"testing"
)

// Benchmarks of the rings alone and with two sides that park. The numbers depend on where the two sides run: compare
// them only within one run, and pin the process (taskset) to know what is compared. bench/ compares the whole transport
// with a plain unix socket.

func BenchmarkPushPop(b *testing.B) {
	segs := newPair(b, 64, 64<<10)
	p, c := NewProducer(segs.a, segs.b), NewConsumer(segs.workerB, segs.workerA)
	var d Descriptor
	b.ReportAllocs()
	for b.Loop() {
		p.Push(&d)
		p.ShouldRing()
		if ok, err := c.Pop(&d, 1); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// One message in flight: each costs two pushes, two bells and two wake-ups.
func BenchmarkPingPongGoroutines(b *testing.B) { benchGoroutines(b, 1) }
func BenchmarkPingPongProcesses(b *testing.B)  { benchProcesses(b, 1) }

// 64 messages in flight: bells become rare.
func BenchmarkThroughputGoroutines(b *testing.B) { benchGoroutines(b, 64) }
func BenchmarkThroughputProcesses(b *testing.B)  { benchProcesses(b, 64) }

func benchGoroutines(b *testing.B, inFlight uint64) {
	segs := newPair(b, 64, 64<<10)
	x, y, err := socketPair()
	if err != nil {
		b.Fatal(err)
	}
	gateway, err := newSide(segs.a, segs.b, x)
	if err != nil {
		b.Fatal(err)
	}
	worker, err := newSide(segs.workerB, segs.workerA, y)
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- echo(worker) }()
	benchSide(b, gateway, inFlight)
	x.Close()
	<-done
	y.Close()
}

func benchProcesses(b *testing.B, inFlight uint64) {
	segs := newSegments(b, 64, 64<<10)
	conn, childEnd, err := socketPair()
	if err != nil {
		b.Fatal(err)
	}
	file, err := childEnd.File()
	if err != nil {
		b.Fatal(err)
	}
	childEnd.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envPart+"=worker")
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = os.Stderr
	if err = cmd.Start(); err != nil {
		b.Fatal(err)
	}
	file.Close()
	if err = sendSegments(conn, segs); err != nil {
		b.Fatal(err)
	}
	gateway, err := newSide(segs.a, segs.b, conn)
	if err != nil {
		b.Fatal(err)
	}
	benchSide(b, gateway, inFlight)
	conn.Close()
	if err = cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// benchSide keeps inFlight messages in flight, without payloads. One operation is one message there and back.
func benchSide(b *testing.B, s *side, inFlight uint64) {
	var d Descriptor
	nothing := func() error { return nil }
	outstanding := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		for ; outstanding < inFlight; outstanding++ {
			message{}.put(&d)
			s.Push(&d)
		}
		if err := s.bell(); err != nil {
			b.Fatal(err)
		}
		if err := s.next(&d, outstanding, nothing); err != nil {
			b.Fatal(err)
		}
		outstanding--
	}
	b.StopTimer()
	b.ReportMetric(float64(s.sleeps)/float64(b.N), "sleeps/op")
}

func BenchmarkSlab(b *testing.B) {
	b.Run("restarts", func(b *testing.B) { // one block in use at a time: each Free restarts the slab
		s := NewSlab(0, 64<<20)
		b.ReportAllocs()
		for b.Loop() {
			block, ok := s.Alloc(3072)
			if !ok {
				b.Fatal("no block")
			}
			s.Free(block)
		}
	})
	b.Run("steady", func(b *testing.B) { // a pipeline of eight blocks of changing size
		s := NewSlab(0, 64<<20)
		var held [8]Block
		for i := range held {
			held[i] = mustAlloc(b, s, 3072)
		}
		b.ReportAllocs()
		var ok bool
		i := 0
		for b.Loop() {
			s.Free(held[i%8])
			if held[i%8], ok = s.Alloc(uint64(i%61+1) * 3072); !ok {
				b.Fatal("no block")
			}
			i++
		}
	})
}
