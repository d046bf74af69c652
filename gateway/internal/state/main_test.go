package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

func TestMain(m *testing.M) {
	if what, path, found := strings.Cut(os.Getenv(childVariable), "="); found {
		if err := children[what](path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// childVariable tells a test binary that a test runs as a child what to do, and on which path: "name=path".
const childVariable = "XEBEC_STATE_TEST_CHILD"

var children = map[string]func(path string) error{"limit": fullByLimit, "disk": fullByDisk, "commits": commitForever, "convert": convertAndDie}

func child(t *testing.T, what, path string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childVariable+"="+what+"="+path)
	return cmd
}

// A place is a file or a Redis server for one test. Each open is a new writer. A place that is not shared has one at a time.
type place struct {
	shared bool
	open   func() Backend
}

// eachPlace runs a test on an empty file and on an empty Redis server.
func eachPlace(t *testing.T, test func(t *testing.T, p place)) {
	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state.db")
		test(t, place{false, func() Backend { return mustOpen(t, path) }})
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t, redistest.Config{})
		test(t, place{true, func() Backend { return mustOpen(t, server.URL()) }})
	})
}

// mustOpen opens a store and closes it when the test ends, if the test has not.
func mustOpen(t testing.TB, where string) Backend {
	t.Helper()
	s, err := Open(where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// short returns a context for one call. Its minute is far more than any call needs.
func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func merge(t testing.TB, s Store, updates ...Update) [][]Total {
	t.Helper()
	totals, err := s.Merge(short(t), updates)
	if err != nil {
		t.Fatal(err)
	}
	if len(totals) != len(updates) {
		t.Fatalf("Merge of %d updates returned %d states", len(updates), len(totals))
	}
	return totals
}

func load(t testing.TB, s Store, k Key) []Total {
	t.Helper()
	totals, err := s.Load(short(t), []Key{k})
	if err != nil {
		t.Fatal(err)
	}
	if len(totals) != 1 || totals[0] == nil {
		t.Fatalf("Load of one key returned %v", totals)
	}
	return totals[0]
}

// add returns an update of one field, n, which starts at 0.
func add(k Key, seq uint64, delta float64) Update {
	return Update{Key: k, Fields: []Field{{Name: "n", Delta: delta}}, Seq: seq}
}

func wantTotals(t testing.TB, got []Total, want ...Total) {
	t.Helper()
	if got == nil {
		t.Fatalf("got nil, want %v", want)
	}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// wantError checks that the text of an error contains all parts.
func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error: want one that says %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %q: want it to say %q", err, part)
		}
	}
}

// wantRefused checks that exactly the update or key at index was refused, for a reason that contains part.
func wantRefused(t testing.TB, err error, index int, part string) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("the error is %v: want a RefusedError", err)
	}
	if len(refused.Refused) != 1 || refused.Refused[0].Index != index {
		t.Fatalf("refused is %v: want only index %d", refused.Refused, index)
	}
	wantError(t, err, part)
}

// raw returns a client that reads and tampers with keys beside the store.
func raw(t testing.TB, server *redistest.Server) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}
