package inferlog

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// directoryVariable names the directory that a child logs to.
const directoryVariable = "INFERLOG_DIR"

func child(t *testing.T, what, dir string) *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), childVariable+"="+what, directoryVariable+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// childKilled logs until it is killed, and reports from time to time how much was flushed.
func childKilled() {
	l, err := Open(Config{Dir: os.Getenv(directoryVariable), BlockBytes: 8 << 10, Flush: time.Millisecond, FileBytes: 64 << 10})
	fatal(err)
	s := l.Function("digits", digitsIn, digitsOut, 1)
	for id := uint64(0); ; id++ {
		s.Add(query(id))
		if id%1000 == 999 {
			fatal(l.Flush(context.Background()))
			fmt.Println(id + 1 - l.Stats().Dropped.Total())
		}
	}
}

// Everything that a gateway had flushed when it was killed can be read, and what it was writing, up to a frame.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "killed", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	flushed, lines := 0, bufio.NewScanner(out)
	for range 20 {
		if !lines.Scan() {
			t.Fatal("the child exited before it was killed")
		}
		if _, err := fmt.Sscan(lines.Text(), &flushed); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child failed: %v", err)
	}
	all, sum := readAll(t, dir)
	if len(all) < flushed || sum.Damaged > 1 || flushed == 0 {
		t.Errorf("read %d entries of %d that were flushed, %v", len(all), flushed, sum.Notes)
	}
	last := -1
	for _, e := range all {
		if id := int(e.Record.ID); id <= last || compare(query(uint64(id)), e.Record) != "" {
			t.Fatalf("after query %d: %+v", last, e.Record)
		}
		last = int(e.Record.ID)
	}
	l := mustOpen(t, Config{Dir: dir}) // the lock ended with the process
	mustClose(t, l)
}

// fullReport is the result of childFull.
type fullReport struct {
	Full, Again Stats
	Logged      uint64
}

const fullLimit = 64 << 10

// childFull logs while a limit of fullLimit on file sizes simulates a full disk, and then after the limit is lifted.
func childFull() {
	signal.Ignore(syscall.SIGXFSZ)
	var unlimited syscall.Rlimit
	fatal(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited))
	now := testTime
	cfg := Config{Dir: os.Getenv(directoryVariable), Flush: time.Hour, Now: func() time.Time { return now }}
	l, err := Open(cfg)
	fatal(err)
	fatal(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: fullLimit, Max: unlimited.Max}))
	s := l.Function("digits", digitsIn, digitsOut, 1)
	var report fullReport
	for id := uint64(0); !l.Stats().Unavailable; id++ {
		s.Add(query(id * 0x9e3779b97f4a7c15)) // ids that do not compress
		if id%100 == 99 {
			fatal(l.Flush(context.Background()))
			report.Logged = l.Stats().Records
		}
	}
	report.Full = l.Stats()
	fatal(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited))
	now = now.Add(retryAfter)
	s.Add(query(1))
	fatal(l.Close(context.Background()))
	report.Again = l.Stats()
	fatal(json.NewEncoder(os.Stdout).Encode(report))
	os.Exit(0)
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	out, err := child(t, "full", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r fullReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Full.LastError, syscall.EFBIG.Error()) || r.Full.Dropped.Write != 100 || r.Full.KeptBytes > fullLimit || r.Logged == 0 {
		t.Errorf("while the disk was full: %+v", r.Full)
	}
	if r.Again.Unavailable || r.Again.Records != r.Logged+1 || r.Again.Files != 2 {
		t.Errorf("after that: %+v", r.Again)
	}
	all, sum := readAll(t, dir)
	if uint64(len(all)) != r.Logged+1 || sum.Damaged != 0 { // the incomplete last frame was truncated
		t.Errorf("read %d entries of %d, %v", len(all), r.Logged+1, sum.Notes)
	}
}
