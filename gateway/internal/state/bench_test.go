package state

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// BenchmarkMerge is the cost of one call with updates of 1 or of 100 states, of five models with four numbers each.
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
