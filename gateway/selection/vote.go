package selection

import "math"

// slotVote holds how far the plain vote's log-weight is ahead of the row's own, in a policy in which the vote takes part.
// Every row has it, so the vote's weight stays when candidates come and go. 0, which is also what a state without the
// slot is read as, means that the vote weighs as much as the row; only the best row's number is read. If all are 0 although
// the rows differ, the state is older than the slot: the vote takes no part, so that answers stay what they were, until the
// next observation, when it begins at its lower bound.
const (
	slotVote  = weightSlots
	voteSlots = weightSlots + 1
)

// ballot is the plain vote as one more expert beside the candidates. It says what most of them say, whatever their
// weights, and is weighed like them by its own loss. Where the candidates correct each other's errors the vote has fewer
// of them than the best candidate, and comes to decide; where one candidate is better than the vote, that one does.
// Each is at most bound ahead of the other, so that a change is noticed (weights.go).
type ballot struct {
	on    bool
	bound float64
}

// ballotOf returns the ballot whose weight stays within factor times the best candidate's and the inverse; 0: none.
func ballotOf(factor float64) ballot { return ballot{factor > 0, math.Log(max(factor, 1))} }

// lead returns the best row's log-weight, and how far the vote's is ahead of it: from -bound to bound. older says that the
// state was learned without a vote, which begins there.
func (b ballot) lead(s State) (best, lead float64, older bool) {
	best = bestOf(s, slotWeight)
	found := false
	for i := slotWeight; i < len(s.V) && !found; i += s.Slots {
		if ahead := s.V[i-slotWeight+slotVote]; s.V[i] == best && plausible(ahead) {
			lead, found = max(min(ahead, b.bound), -b.bound), true
		}
	}
	if lead == 0 && b.on && withoutVote(s, best) {
		return best, -b.bound, true
	}
	return best, lead, false
}

func withoutVote(s State, best float64) bool {
	differ := false
	for i := slotWeight; i < len(s.V); i += s.Slots {
		if s.V[i-slotWeight+slotVote] != 0 {
			return false
		}
		differ = differ || plausible(s.V[i]) && s.V[i] != best
	}
	return differ
}

// fall returns the change to the vote's log-weight lw that lowers it by charge, within the bound of the best row's next
// one. It is never above 0; see lower.
func (b ballot) fall(lw, next, charge float64) float64 {
	return min(lower(lw, next, charge, b.bound), next+b.bound-lw, 0)
}

// PlainVote returns the loss of the plain vote over the candidates in arrived: of the class that most of them predict. Of
// classes that have equally many votes it is the mean loss. class and losses are by candidate. known is false if no
// candidate has arrived, or if a loss that counts is NaN.
func PlainVote(arrived Set, class *[MaxCandidates]uint64, losses *[MaxCandidates]float64) (loss float64, known bool) {
	most, tied := 0, 0
	for rest := arrived; rest != 0; {
		first, votes := rest.First(), 0
		for t := rest; t != 0; t &= t - 1 {
			if i := t.First(); class[i] == class[first] {
				votes++
				rest = rest.Without(i)
			}
		}
		if votes > most {
			most, tied, loss = votes, 0, 0
		}
		if votes == most {
			tied++
			loss += losses[first]
		}
	}
	loss /= float64(max(tied, 1))
	return loss, tied > 0 && loss == loss
}

// plurality returns the most votes that a class has, and how many classes have as many.
func (c *Combination) plurality() (most, tied int) {
	counted := Set(0)
	for a := range c.Answers {
		if counted.Has(a) {
			continue
		}
		votes := 0
		for b := a; b < len(c.Answers); b++ {
			if c.Answers[b].Class == c.Answers[a].Class {
				counted = counted.With(b)
				votes++
			}
		}
		if votes > most {
			most, tied = votes, 0
		}
		if votes == most {
			tied++
		}
	}
	return most, tied
}
