package state

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Values, in both kinds of store.

var valueKey = Key{"digits", "stacking", ""}

func save(t *testing.T, s Values, x Save) Saved {
	t.Helper()
	x.Key = valueKey
	got, err := s.SaveValue(short(t), &x)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wantValue(t *testing.T, s Values, since uint64, data string, revision uint64) {
	t.Helper()
	got, err := s.LoadValue(short(t), valueKey, since)
	if err != nil || string(got.Data) != data || got.Revision != revision {
		t.Fatalf("loaded %q of revision %d (%v), want %q of %d", got.Data, got.Revision, err, data, revision)
	}
}

func lease(t *testing.T, s Values, lasts time.Duration) uint64 {
	t.Helper()
	fence, err := s.LeaseValue(short(t), valueKey, lasts)
	if err != nil {
		t.Fatal(err)
	}
	return fence
}

// TestSavesFollowEachOther: a save replaces the revision that it is based on and no other. The same save is applied once.
func TestSavesFollowEachOther(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		wantValue(t, s, 0, "", 0)
		all := bytes.Repeat([]byte{0, 255, '\r', '\n'}, 100)
		if got := save(t, s, Save{Data: all, Seq: 5}); !got.Applied || got.Revision != 1 || got.Data != nil {
			t.Fatalf("%+v", got)
		}
		wantValue(t, s, 0, string(all), 1)
		wantValue(t, s, 1, "", 1)
		if got := save(t, s, Save{Data: all, Seq: 5}); !got.Applied || got.Revision != 1 || !bytes.Equal(got.Data, all) {
			t.Fatalf("sent again: %+v", got)
		}
		if got := save(t, s, Save{Data: []byte("stale"), Seq: 6}); got.Applied || got.Fenced || got.Revision != 1 || !bytes.Equal(got.Data, all) {
			t.Fatalf("a stale save: %+v", got)
		}
		if got := save(t, s, Save{Data: []byte("two"), Base: 1, Seq: 7}); !got.Applied || got.Revision != 2 {
			t.Fatalf("%+v", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = p.open()
		wantValue(t, s, 1, "two", 2)
		if got := save(t, s, Save{Data: []byte{}, Base: 2, Seq: 1}); !got.Applied {
			t.Fatalf("another writer's first save: %+v", got)
		}
		got, err := s.LoadValue(short(t), valueKey, 2)
		if err != nil || got.Data == nil || len(got.Data) != 0 {
			t.Fatalf("an empty value is %+v (%v)", got, err)
		}
	})
}

// TestASaveWhoseAnswerIsLost: another writer has saved since. The first one learns that its save was applied, and what
// there is now.
func TestASaveWhoseAnswerIsLost(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		if !p.shared {
			return // a file has one writer
		}
		a, b := p.open(), p.open()
		save(t, a, Save{Data: []byte("a"), Seq: 1})
		save(t, b, Save{Data: []byte("ab"), Base: 1, Seq: 1})
		if got := save(t, a, Save{Data: []byte("a"), Seq: 1}); !got.Applied || got.Revision != 2 || string(got.Data) != "ab" {
			t.Errorf("%+v", got)
		}
	})
}

// TestLeaseHasOneHolder: a lease ends when it is given up or runs out, and what is saved under an earlier one is refused.
func TestLeaseHasOneHolder(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		a := p.open()
		first := lease(t, a, time.Minute)
		if first == 0 || lease(t, a, time.Minute) != first {
			t.Fatal("a lease that is renewed keeps its fence")
		}
		if got := save(t, a, Save{Data: []byte("a"), Fence: first, Seq: 1}); !got.Applied {
			t.Fatalf("%+v", got)
		}
		var b Values
		if p.shared {
			b = p.open()
			if lease(t, b, time.Minute) != 0 {
				t.Fatal("two writers have the lease")
			}
			lease(t, a, 0)
		} else {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			b = p.open()
		}
		second := lease(t, b, time.Millisecond)
		if second <= first {
			t.Fatalf("fence %d after %d", second, first)
		}
		if got := save(t, b, Save{Data: []byte("late"), Base: 1, Fence: first, Seq: 9}); !got.Fenced || got.Applied || string(got.Data) != "a" {
			t.Fatalf("a save with an old fence: %+v", got)
		}
		if got := save(t, b, Save{Data: []byte("b"), Base: 1, Fence: second, Seq: 10}); !got.Applied {
			t.Fatalf("%+v", got)
		}
		if !p.shared {
			return
		}
		for third := uint64(0); third <= second; { // until the millisecond is over
			third = lease(t, a, time.Minute)
		}
		if got := save(t, b, Save{Data: []byte("again"), Base: 2, Fence: second, Seq: 11}); !got.Fenced {
			t.Fatalf("the lease ran out, and its holder saves: %+v", got)
		}
	})
}

// TestForgetDropsValues: a value is forgotten with its function. It is not a state, and its states are not values.
func TestForgetDropsValues(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		fence := lease(t, s, time.Minute)
		save(t, s, Save{Data: []byte("x"), Fence: fence, Seq: 1})
		merge(t, s, add(valueKey, 2, 1), add(Key{"digits", "stacking", "stacking"}, 3, 1), add(Key{"other", "stacking", ""}, 4, 1))
		wantTotals(t, load(t, s, valueKey), Total{"n", 1})
		wantValue(t, s, 0, "x", 1)
		if err := s.Forget(short(t), "digits"); err != nil {
			t.Fatal(err)
		}
		wantValue(t, s, 0, "", 0)
		wantTotals(t, load(t, s, valueKey))
		fence = lease(t, s, time.Minute)
		if got := save(t, s, Save{Data: []byte("y"), Fence: fence, Seq: 5}); !got.Applied {
			t.Errorf("after it was forgotten: %+v", got)
		}
	})
}

// TestRefusedValues: what can never be stored is refused, with the reason.
func TestRefusedValues(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		for reason, x := range map[string]Save{
			"sequence number": {Key: valueKey, Data: []byte("x")},
			"1048577 bytes":   {Key: valueKey, Data: make([]byte, MaxValueBytes+1), Seq: 1},
			"context":         {Key: Key{"digits", "stacking", "ann"}, Seq: 1},
			"no policy":       {Key: Key{"digits", "", ""}, Seq: 1},
		} {
			_, err := s.SaveValue(short(t), &x)
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), reason) {
				t.Errorf("%v: want a refusal that says %q", err, reason)
			}
		}
		if got := save(t, s, Save{Data: make([]byte, MaxValueBytes), Seq: 1}); !got.Applied {
			t.Errorf("the largest value: %+v", got)
		}
		for _, call := range []func() error{
			func() error { _, err := s.LoadValue(short(t), Key{"", "p", ""}, 0); return err },
			func() error { _, err := s.LeaseValue(short(t), Key{"", "p", ""}, time.Second); return err },
		} {
			if err := call(); !errors.As(err, new(*RefusedError)) {
				t.Errorf("%v: want a refusal", err)
			}
		}
	})
}

// TestFlippedBitsOfAValue: a value that was altered in the file is refused and never used.
func TestFlippedBitsOfAValue(t *testing.T) {
	v := fileValue{revision: 3, fence: 4, writer: [16]byte{1, 2}, seq: 5, data: []byte("data")}
	key := fileValueKey(valueKey)
	b := v.encode(key)
	for i := range 8 * len(b) {
		b[i/8] ^= 1 << (i % 8)
		if got, err := decodeFileValue(key, b); err == nil {
			t.Errorf("bit %d: %+v", i, got)
		}
		b[i/8] ^= 1 << (i % 8)
	}
	for n := range len(b) {
		if _, err := decodeFileValue(key, b[:n:n]); n > 0 && err == nil {
			t.Errorf("%d bytes are a value", n)
		}
	}
	if _, err := decodeFileValue(append(key, 'x'), b); err == nil {
		t.Error("a value was moved to another key")
	}

	s := mustOpen(t, t.TempDir()+"/state.db")
	save(t, s, Save{Data: []byte("x"), Seq: 1})
	f := s.(*fileStore)
	if err := f.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(policyBucket).Bucket([]byte(valueKey.Function)).Put(key, b[:20])
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LoadValue(short(t), valueKey, 0); !errors.As(err, new(*RefusedError)) {
		t.Errorf("%v: want a refusal", err)
	}
	if _, err := s.LeaseValue(short(t), valueKey, time.Second); !errors.As(err, new(*RefusedError)) {
		t.Errorf("%v: want a refusal", err)
	}
}

// TestStrangeValuesInRedis: what another program has put there is refused, not trusted.
func TestStrangeValuesInRedis(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		if !p.shared {
			return
		}
		s := p.open()
		r := s.(*redisStore)
		for reason, put := range map[string]func() error{
			"not a hash": func() error { return r.client.Set(short(t), redisValueKey(valueKey), "x", 0).Err() },
			"revision":   func() error { return r.client.HSet(short(t), redisValueKey(valueKey), "revision", "many").Err() },
			"fence":      func() error { return r.client.HSet(short(t), redisValueKey(valueKey), "fence", "-1").Err() },
			"longer": func() error {
				return r.client.HSet(short(t), redisValueKey(valueKey), "data", make([]byte, MaxValueBytes+1)).Err()
			},
		} {
			if err := errors.Join(r.client.Del(short(t), redisValueKey(valueKey)).Err(), put()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.LoadValue(short(t), valueKey, 0); !errors.As(err, new(*RefusedError)) || !strings.Contains(err.Error(), reason) {
				t.Errorf("%v: want a refusal that says %q", err, reason)
			}
		}
	})
}
