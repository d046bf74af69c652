package docker

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/containers"
)

// The engine reports a container's end before it reports that the kernel has killed it for memory.
func TestOutOfMemoryIsReportedLate(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "e")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/json") {
			fmt.Fprintf(w, `{"State": {"ExitCode": 137, "OOMKilled": %v}}`, asked.Add(1) > 3)
		}
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = engine.Serve(ln) }()
	defer func() { engine.Close(); <-served }()
	r, err := New(Config{Host: "unix://" + socket, Owner: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in := &instance{r: r, id: "c", launch: containers.Launch{Limits: containers.Limits{MemoryBytes: 64 << 20}}}
	if exit := in.ended(137, true, ""); exit.Cause != containers.OutOfMemory || !strings.Contains(exit.Reason, "its memory limit of 64 MiB") {
		t.Errorf("%+v", exit)
	}
	// One that was asked to end is not asked for again.
	asked.Store(0)
	in.endRequested.Store(true)
	if exit := in.ended(137, true, ""); exit.Cause == containers.OutOfMemory || asked.Load() != 1 {
		t.Errorf("asked %d times: %+v", asked.Load(), exit)
	}
}
