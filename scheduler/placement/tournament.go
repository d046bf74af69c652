package placement

import (
	"cmp"
	"math/bits"
)

// tournament repeatedly finds the best of many claims, each time after the winner's owner has replaced its claim. It is
// a tree of losers (Knuth, The Art of Computer Programming 3, section 5.4.1): every inner node stores the loser there,
// so that a winner's next claim meets only the losers on its way up. That is one comparison a level, ten among 1,000
// models; a heap needs two. The results are unpredictable, and a mispredicted branch costs more than the comparison, so
// the two are exchanged by arithmetic, without a branch.
type tournament struct {
	models []Model // break ties between claims
	claims []claim // one of each participant
	losers []int32 // by inner node, the root is 1; index 0 has the winner
}

// noClaim is the claim of a participant that has no more. It is worse than all others.
var noClaim = claim{order: 1<<64 - 1, tie: 1<<64 - 1}

// start begins with claims and returns the best.
func (t *tournament) start() *claim {
	t.losers = resize(t.losers, len(t.claims))
	for i := range t.losers {
		t.losers[i] = -1
	}
	for i := range t.claims {
		t.climb(int32(i))
	}
	return t.best()
}

// climb inserts a participant: it waits at an empty node, or competes at an occupied one.
func (t *tournament) climb(player int32) {
	for at := (int(player) + len(t.claims)) / 2; at > 0; at /= 2 {
		other := t.losers[at]
		if other < 0 {
			t.losers[at] = player
			return
		}
		if t.compare(&t.claims[other], &t.claims[player]) < 0 {
			t.losers[at], player = player, other
		}
	}
	t.losers[0] = player
}

// best returns the best claim, or nil if none is left.
func (t *tournament) best() *claim {
	if len(t.losers) == 0 {
		return nil
	}
	if c := &t.claims[t.losers[0]]; c.order != noClaim.order {
		return c
	}
	return nil
}

// play returns the best claim after the previous best one has been changed in place.
func (t *tournament) play() *claim {
	claims, losers := t.claims, t.losers
	player := losers[0]
	order, tie := claims[player].order, claims[player].tie
	for at := (uint(player) + uint(len(losers))) / 2; at > 0; at /= 2 {
		other := losers[at]
		c := &claims[other]
		_, wins := bits.Sub64(c.tie, tie, 0)
		_, wins = bits.Sub64(c.order, order, wins) // 1: c is better
		if c.tie == tie && c.order == order && t.compare(c, &claims[player]) < 0 {
			wins = 1
		}
		both := (other ^ player) & -int32(wins) // exchanges the two, or is 0
		losers[at] = other ^ both
		player ^= both
		order ^= (order ^ c.order) & -wins
		tie ^= (tie ^ c.tie) & -wins
	}
	losers[0] = player
	return t.best()
}

// compare is negative if a is better than b. Of equal claims the one with more queries for the replica is better, then
// that of the most recently used model.
func (t *tournament) compare(a, b *claim) int {
	if a.order != b.order {
		return cmp.Compare(a.order, b.order)
	}
	if a.tie != b.tie {
		return cmp.Compare(a.tie, b.tie)
	}
	x, y := &t.models[a.model], &t.models[b.model]
	return cmp.Or(cmp.Compare(y.LastUsed, x.LastUsed), cmp.Compare(x.Key, y.Key), cmp.Compare(a.model, b.model))
}
