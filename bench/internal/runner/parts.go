package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Part is one measurement of a program with settings C and report R. -only selects parts by name.
type Part[C, R any] struct {
	Name, Title string
	Measure     func(ctx context.Context, cfg C, report *R) error
}

// Parts are a program's parts in the order in which they run.
type Parts[C, R any] []Part[C, R]

// Choose returns the parts that only, the comma-separated value of -only, names. An empty value means all parts.
func (ps Parts[C, R]) Choose(only string) (Parts[C, R], error) {
	if only == "" {
		return ps, nil
	}
	known := make([]string, len(ps))
	for i, p := range ps {
		known[i] = p.Name
	}
	names, err := Names("only", only, known...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(ps), func(p Part[C, R]) bool { return !slices.Contains(names, p.Name) }), nil
}

// Took is how long a part took, including the start of its gateway.
type Took struct {
	Part    string  `json:"part"`
	Seconds float64 `json:"seconds"`
}

// Run measures the parts one after the other and returns how long each took. A part that fails does not stop the others; the end of ctx
// does. The error joins those of all parts.
func (ps Parts[C, R]) Run(ctx context.Context, cfg C, report *R) ([]Took, error) {
	var all []Took
	var failed error
	for _, p := range ps {
		if ctx.Err() != nil {
			break
		}
		Logf("==> part %s: %s", p.Name, p.Title)
		began := time.Now()
		if err := p.Measure(ctx, cfg, report); err != nil {
			failed = errors.Join(failed, fmt.Errorf("part %s: %w", p.Name, err))
			Logf("    failed: %v", err)
		}
		all = append(all, Took{p.Name, time.Since(began).Round(100 * time.Millisecond).Seconds()})
	}
	return all, failed
}

// Alternate returns the contenders of a round in the order in which they run: as given in even rounds, reversed in odd ones. With that
// order a machine that becomes slower during the measurement slows all contenders.
func Alternate[T any](round int, contenders ...T) []T {
	order := slices.Clone(contenders)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// Rotate returns the contenders of a round in the order in which they run: the first of each round is the next one.
func Rotate[T any](round int, contenders ...T) []T {
	n := round % max(len(contenders), 1)
	return slices.Concat(contenders[n:], contenders[:n])
}
