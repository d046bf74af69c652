package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

// What two processes of a gateway ask each other: the one that does not have the store writes and reads what it learns through the
// other; each asks what the other remembers of a query; the old one asks what a canary has answered.
const (
	opMerge = "merge"
	opLoad  = "load"
	opPast  = "past"
	// opSamples asks what a canary has answered.
	opSamples = "samples"
	// opAwaited asks what the new process has not loaded yet.
	opAwaited = "awaited"
	// opReplicas asks how many replicas the versions of the old process have.
	opReplicas = "replicas"
)

type pastQuestion struct {
	ID       uint64 `json:"id"`
	Function string `json:"function"`
}

// learnedKey is a state.Key whose context survives JSON.
type learnedKey struct {
	Function string `json:"function"`
	Policy   string `json:"policy"`
	Context  []byte `json:"context"`
}

type learnedUpdate struct {
	Key    learnedKey    `json:"key"`
	Fields []state.Field `json:"fields"`
	Seq    uint64        `json:"seq"`
}

type learnedAnswer struct {
	Totals  [][]state.Total `json:"totals"`
	Refused []state.Refusal `json:"refused,omitempty"` // without their keys
}

func keyFrom(k state.Key) learnedKey {
	return learnedKey{Function: k.Function, Policy: k.Policy, Context: []byte(k.Context)}
}

func (k learnedKey) key() state.Key {
	return state.Key{Function: k.Function, Policy: k.Policy, Context: string(k.Context)}
}

// farStore is the store of a process while the other one has it: the new one on trial, and the old one afterwards.
type farStore struct{ conn *takeover.Conn }

// Merge implements state.Learned.
func (f farStore) Merge(ctx context.Context, updates []state.Update) ([][]state.Total, error) {
	asked := make([]learnedUpdate, len(updates))
	for i, u := range updates {
		asked[i] = learnedUpdate{keyFrom(u.Key), u.Fields, u.Seq}
	}
	return f.ask(ctx, opMerge, asked, func(i int) state.Key { return updates[i].Key }, len(updates))
}

// Load implements state.Learned.
func (f farStore) Load(ctx context.Context, keys []state.Key) ([][]state.Total, error) {
	asked := make([]learnedKey, len(keys))
	for i, k := range keys {
		asked[i] = keyFrom(k)
	}
	return f.ask(ctx, opLoad, asked, func(i int) state.Key { return keys[i] }, len(keys))
}

func (f farStore) ask(ctx context.Context, op string, body any, keyOf func(int) state.Key, n int) ([][]state.Total, error) {
	var a learnedAnswer
	if err := f.conn.Call(ctx, op, body, &a); err != nil {
		return nil, fmt.Errorf("the process that has the store does not take what was learned: %w", err)
	}
	for i := range a.Refused {
		r := &a.Refused[i]
		if r.Index < 0 || r.Index >= n {
			return nil, fmt.Errorf("the process that has the store refuses state %d of %d", r.Index, n)
		}
		r.Key = keyOf(r.Index)
	}
	if len(a.Refused) > 0 {
		return a.Totals, &state.RefusedError{Refused: a.Refused}
	}
	return a.Totals, nil
}

// answer answers what the other process asks. guest is the store, for that process; nil: that one has it itself.
func (s *Server) answer(within time.Duration, guest state.Learned, op string, body []byte) (any, error) {
	switch op {
	case opPast:
		var q pastQuestion
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, err
		}
		return s.path.TakePast(q.ID, q.Function), nil
	case opSamples:
		return s.samples().named(maxNamed), nil
	case opAwaited:
		return s.awaited(), nil
	case opReplicas:
		return s.replicas(), s.capacity.FitsTwice()
	}
	if guest == nil {
		return nil, errors.New("the process that is asked does not have the store")
	}
	ctx, cancel := context.WithTimeout(s.life, within)
	defer cancel()
	var totals [][]state.Total
	var err error
	switch op {
	case opMerge:
		var asked []learnedUpdate
		if err := json.Unmarshal(body, &asked); err != nil {
			return nil, err
		}
		updates := make([]state.Update, len(asked))
		for i, u := range asked {
			updates[i] = state.Update{Key: u.Key.key(), Fields: u.Fields, Seq: u.Seq}
		}
		totals, err = guest.Merge(ctx, updates)
		s.learned.Reread()
	case opLoad:
		var asked []learnedKey
		if err := json.Unmarshal(body, &asked); err != nil {
			return nil, err
		}
		keys := make([]state.Key, len(asked))
		for i, k := range asked {
			keys[i] = k.key()
		}
		totals, err = guest.Load(ctx, keys)
	default:
		return nil, fmt.Errorf("the other process asks for %q, which is not known here", op)
	}
	a := learnedAnswer{Totals: totals}
	var refused *state.RefusedError
	if errors.As(err, &refused) {
		for _, r := range refused.Refused {
			a.Refused = append(a.Refused, state.Refusal{Index: r.Index, Reason: r.Reason})
		}
		err = nil
	}
	return a, err
}
