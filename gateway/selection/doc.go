// Package selection holds the policies by which a function chooses among its candidate models, combines their answers and learns
// from feedback: the model selection layer of the Clipper paper (section 5). It promises the gateway that a choice costs
// well under a microsecond for a few models and no memory; app developers, that a function with feedback becomes about as good as
// its best model, or better, and notices when another one is the best; and authors of policies, that theirs is one file
// (WRITING.md).
//
// # State in, choice out
//
// A [Policy] is parameters and arithmetic. What it has learned is a [State]: for each candidate a row of float64s, which the caller
// keeps, one for each function and context. For one query the caller
//
//  1. calls Select with the state, those that may be asked, and what the plan has room for; asks the candidates of
//     [Selection].Ask and keeps P, with which they were chosen;
//  2. may call Select again when answers are in, with Asked and Confidence, and ask for more;
//  3. at the deadline, or when all are in, calls Combine with what there is: the answer, who agreed, how sure that is;
//  4. when feedback comes, makes losses of it (see [Loss]), calls Observe with these and with the recorded P, and adds Delta to the state.
//
// Numbers are additive: the state of a function that several gateways serve is what each of them has added. So log-weights are
// never normalised in place, and forgetting is the addition of something negative. A policy reads the state as it finds it:
// NaN, infinities and what cannot have been learned are as if nothing were known.
//
// A candidate that joins begins at the mean of the others (Join), a context at what is known globally, with less certainty
// (Descend). Nobody else's row changes: deploying a model forgets nothing.
//
// # The policies
//
//	single          the first candidate
//	prefer          the first one that there is room for
//	split           fixed parts; a context always goes to the same candidate; losses are counted, for people to compare
//	exp3            one candidate, by weights; only the one that was asked learns (section 5.1)
//	exp4            all candidates, a weighted vote or average; each learns from its own loss (section 5.2)
//	epsilon-greedy  the lowest mean loss, and now and then any
//	ucb1            the lowest bound on the loss that doubt allows
//	thompson        each as often as it is likely to be the best
//
// Exp3's update is the paper's, s ← s·exp(−η·L/p), to the log-weight. A worked example: of three models at s = 1 the first is asked,
// with p = 1/3, and is wrong. With η = 0.1 its log-weight falls by 0.1·1/(1/3) = 0.3, and its probability to 0.27. Being asked
// seldom and being charged much cancel out: what a log-weight falls by is η times the model's mean loss, however often it is
// asked, and also where the plan has limited that, for P is what it came to in the end.
//
// Two things are added. A part γ of the queries is spread evenly, as Auer and others do. And log-weights have a greatest distance
// from the best one, without which a model that failed for 5,000 queries would need thousands to be trusted again
// (figure 8); weights.go says where that comes from. In exp4 it also keeps the ensemble together: all that lie at the bound weigh
// a little less than the best one, so that they outvote it only when one that does better agrees with them. The other three
// policies have a memory of so many observations for the same end.
//
// The defaults were found by simulation, with figure 8's story: five models that are wrong in 10 to 30 % of the answers, of which
// the best one fails in 90 % between query 5,000 and 10,000 of 20,000. With each policy there were fewer errors than with any
// one model, in each of three hundred runs (TestFigure8 repeats ten): at the worst exp3 made 0.95 of the best static choice's,
// exp4 0.76, ucb1 and thompson 0.94, epsilon-greedy 0.98. Where models differ by less, or feedback is rarer, a smaller η
// and a longer memory find smaller differences, and changes later.
//
// # Answers and confidence
//
// [Vote] combines for all of them. Confidence is the weight of those whose own prediction agrees with the answer over the weight of
// all that were asked: who is late agrees with nothing, so that stragglers cost confidence and not time (section 5.2.2). In
// a numeric ensemble the running average stands in for who is late. A model's own confidence scales its word.
//
// # What it never does, and its limits
//
// It keeps nothing between calls, reads no clock, knows no model, label or query by its content, and allocates nothing after [New]. It
// does not choose whom the plan must leave out: it says what it would ask (Shares) and what each answer is worth (Gains), and keeps to
// Allowed and Limits. A function has at most 64 candidates, for sets of them are one word.
//
// Losses are taken as they come: feedback that depends on the answer given, or comes for some answers only, biases every one of the
// policies. Exp3 learns nothing from a query whose p is not known. Gateways that learn at once, from the same state, may
// together go further than one would (a log-weight beyond the bound, a count below 0); both are read as the nearest that can be and mend
// in time. Counts in a state are discounted, so they are not how many there have been.
package selection
