package machine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

func TestModelName(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"processor\t: 0\nmodel\t\t: 85\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: another\n", "A CPU @ 2 GHz"},
		{"", "unknown CPU"},
		{"processor\t: 0\nBogoMIPS\t: 50\n", "unknown CPU"}, // as on arm64
	} {
		if got := modelName([]byte(c.in)); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestHere(t *testing.T) {
	m := Here()
	if m.Cores < 1 || !strings.HasPrefix(m.Go, "go") || m.Kernel == "" || m.String() == "" {
		t.Errorf("got %+v", m)
	}
}

func TestCPUTimeGrowsAndKnowsProcesses(t *testing.T) {
	before, err := CPUTime(os.Getpid())
	if err != nil || before <= 0 {
		t.Fatalf("got %v, %v", before, err)
	}
	sum := 0
	for i := range 20_000_000 {
		sum += i ^ sum
	}
	after, err := CPUTime(os.Getpid())
	if err != nil || after <= before {
		t.Errorf("%v, then %v (%v; %d)", before, after, err, sum)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := CPUTime(gone.Process.Pid); err == nil {
		t.Error("a process that has ended still has a clock")
	}
}

func TestOnCoresKeepsChildrenThere(t *testing.T) {
	cores, err := Cores()
	if err != nil || len(cores) == 0 {
		t.Fatalf("got %v, %v", cores, err)
	}
	last := cores[len(cores)-1:]
	var out strings.Builder
	child := exec.Command("cat", "/proc/self/status")
	child.Stdout = &out
	if err := OnCores(last, child.Start); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", last[0]); !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
	// The affinity of this process is unchanged.
	if again, err := Cores(); err != nil || len(again) != len(cores) {
		t.Errorf("%v before, %v after (%v)", cores, again, err)
	}
	if err := OnCores([]int{1000}, child.Start); err == nil {
		t.Error("a processor that does not exist was accepted")
	}
}

func TestPeak(t *testing.T) {
	me := os.Getpid()
	if err := ForgetPeak(me); err != nil {
		t.Fatal(err)
	}
	before, err := Peak(me)
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	memory := make([]byte, size)
	for i := 0; i < size; i += 1 << 10 {
		memory[i] = 1
	}
	after, err := Peak(me)
	if err != nil || after-before < size/2 {
		t.Errorf("%d bytes after %d, %v", after, before, err)
	}
	runtime.KeepAlive(memory)
	if _, err := Peak(-1); err == nil {
		t.Error("a process that does not exist has a peak")
	}
}
