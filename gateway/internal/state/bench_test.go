package state

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// BenchmarkMerge measures one call with updates of 1 or 100 states, each of five models with four numbers.
func BenchmarkMerge(b *testing.B) {
	for kind, open := range map[string]func(b *testing.B) Store{
		"file":  func(b *testing.B) Store { return mustOpen(b, filepath.Join(b.TempDir(), "state.db")) },
		"redis": func(b *testing.B) Store { return mustOpen(b, redistest.Start(b, redistest.Config{}).URL()) },
	} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/updates=%d", kind, n), func(b *testing.B) {
				s := open(b)
				updates := make([]Update, n)
				for i := range updates {
					updates[i].Key = Key{"digits", "exp3", fmt.Sprint(i)}
					for field := range 20 {
						updates[i].Fields = append(updates[i].Fields, Field{fmt.Sprintf("model-%d/%d", field/4, field%4), 0, 1.0 / 3})
					}
				}
				for b.Loop() {
					for i := range updates {
						updates[i].Seq++
					}
					if _, err := s.Merge(context.Background(), updates); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// benchPlaces runs a benchmark on a file and on a Redis server in memory.
func benchPlaces(b *testing.B, run func(b *testing.B, s Backend)) {
	b.Run("file", func(b *testing.B) { run(b, mustOpen(b, filepath.Join(b.TempDir(), "state.db"))) })
	b.Run("redis", func(b *testing.B) { run(b, mustOpen(b, redistest.Start(b, redistest.Config{}).URL())) })
}

// BenchmarkCommit measures a commit of 1 or 1,000 objects of 500 bytes with an event each.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			benchPlaces(b, func(b *testing.B, s Backend) {
				c := Commit{}
				for i := range n {
					c.Put = append(c.Put, Object{ObjectKey: ObjectKey{"Model", fmt.Sprintf("model-%d@1", i)}, Data: make([]byte, 500)})
					c.Events = append(c.Events, event(fmt.Sprintf("model-%d", i), `{"by":"ann"}`))
				}
				for b.Loop() {
					c.ID = randomID()
					c.Base = commit(b, s, c)
				}
			})
		})
	}
}

// BenchmarkChanges measures a poll without changes, and reading everything, in a store of 10,000 objects.
func BenchmarkChanges(b *testing.B) {
	for _, since := range []uint64{1, 0} {
		b.Run(map[uint64]string{1: "none", 0: "all"}[since], func(b *testing.B) {
			benchPlaces(b, func(b *testing.B, s Backend) {
				c := Commit{ID: randomID()}
				for i := range 10_000 {
					c.Put = append(c.Put, Object{ObjectKey: ObjectKey{"Model", fmt.Sprintf("model-%d@1", i)}, Data: make([]byte, 500)})
				}
				commit(b, s, c)
				for b.Loop() {
					if _, err := s.Changes(context.Background(), since); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
