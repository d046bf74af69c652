// Package selection implements selection policies. A policy chooses which candidate models of a function answer a
// query, combines their answers and learns from feedback: the model selection layer of the Clipper paper (section 5).
//
// It makes three promises. To the gateway: for a few models a choice takes well under a microsecond and allocates
// nothing. To application developers: a function with feedback becomes about as good as its best model or better, and
// notices when another model becomes the best. To authors of policies: a policy is one file (WRITING.md).
//
// # State in, choice out
//
// A [Policy] is parameters and arithmetic. What it has learned is a [State]: one row of float64s for each candidate.
// The caller keeps one state for each function and context. For one query the caller
//
//  1. calls Select with the state, the candidates that may be asked, and the limits that the plan sets; asks the candidates in
//     [Selection].Ask; and keeps P, the probabilities with which they were chosen;
//  2. may call Select again when answers have arrived, with Asked and Confidence set, to ask more candidates;
//  3. calls Combine at the deadline, or when all answers have arrived. The result is the answer, the candidates that agree with
//     it, and a confidence;
//  4. when feedback comes, computes the losses (see [Loss], and [PlainVote] for that of the vote), calls Observe with them and the
//     recorded P, and adds Delta to the state.
//
// States are additive: the state of a function that several gateways serve is the sum of what each gateway has added.
// Log-weights are therefore never normalised in place, and forgetting adds a negative number. A policy accepts any
// state: it treats NaN, infinities and other implausible numbers as if nothing were known.
//
// A new candidate starts at the mean of the others (Join). A new context starts from the global state, with less
// certainty (InitContext). Neither changes another row: deploying a model forgets nothing.
//
// # The policies
//
//	single          asks the first candidate
//	prefer          asks the first candidate that the plan has room for
//	split           splits by fixed weights; a context always goes to the same candidate; losses are recorded for comparison
//	exp3            asks one candidate, drawn by weight; only that candidate's weight learns (section 5.1)
//	exp4            asks all candidates and takes a weighted vote or average; each learns from its own loss (section 5.2), and
//	                so does the plain vote
//	epsilon-greedy  asks the candidate with the lowest mean loss, and sometimes a random one
//	ucb1            asks the candidate with the lowest confidence bound on its loss
//	thompson        asks each candidate with the probability that it is the best
//	linucb          asks the candidate that a linear model of the input predicts to be the best
//	stacking        asks all candidates and combines their answers by a regression that is trained on labels
//	rank-fusion     asks all candidates and makes one ranked list of theirs
//
// The last three see more than losses. A policy says what it needs of a query (see [Needs]): its inputs, the predictions
// themselves, the label. The caller shows views of these to policies that ask, and prepares nothing for the others. A
// policy whose knowledge is not a sum of numbers is a [Valuer], which also has a [Value] of its own.
//
// Exp3's update is the paper's, s ← s·exp(−η·L/p), applied to the log-weight. For example, of three models at s = 1 the
// first is asked, with p = 1/3, and is wrong. With η = 0.1 its log-weight falls by 0.1·1/(1/3) = 0.3 and its
// probability to 0.27. A model that is asked seldom is charged more for each loss, and the two effects cancel: the
// expected fall of a log-weight is η times the model's mean loss, however often the model is asked. This also holds
// where the plan limits a model, because P is the probability after limits.
//
// Four things are added to the paper. Each can be turned off: with `gamma: 0, floor: 0` and `floor: 0, vote: 0, boost: 0` exp3 and exp4
// are the paper's (TestPaper).
//
// In exp3 a fraction γ of the queries is spread evenly, as in Auer et al.
//
// A log-weight can fall only a bounded distance behind the best one (weights.go gives the source). Without the bound, a
// model that failed for 5,000 queries would need thousands more to be trusted again (figure 8). The other three learning
// policies limit their memory to a number of observations for the same purpose. In exp4 all candidates at the bound together
// weigh a little less than the best one.
//
// In exp4 the plain vote is one more expert (vote.go). Exp4 promises no more than to be nearly as good as the best expert,
// and weights that fall exponentially soon leave the decision to it. But a vote of models that err on different queries is
// better than each of them. As an expert it gets the weight that it deserves. For example, five independent models with
// errors of 20 % have a vote with errors of 1.5 %; exp4 without it made 6.2 %, and makes 1.5 % with it. Where the vote is worse
// than the best model it soon weighs a tenth of it.
//
// In exp4 the learning rate falls from boost with the square root of the observations, down to eta. A context of which
// little is known learns fast: users with sixty labels each made 23.7 % errors instead of 28.2 %. A rate that falls further finds
// smaller differences where nothing changes, and does not notice changes.
//
// The defaults were found by experiment: bench/cmd/learning -orders plays data sets and streams in which models fail to each
// policy in 20 orders, with a sweep of the parameters, and bench/RESULTS.md has the outcome. exp4 has no more errors than
// the plain vote there, within noise, with one exception: 15.3 % against 15.2 % with sixteen forests that are equally good.
// It returns to a model that has recovered. What figure 8 gains is gained by the bound: the paper's Exp4 made 18.5 % errors
// there, the best single model 18.3 %, exp4 11.5 %. Where models differ by less, or feedback is rarer, a smaller η and a
// longer memory find smaller differences, but notice changes later.
//
// # Answers and confidence
//
// All policies but stacking and rank-fusion combine answers with [Vote]. Confidence is the weight of the candidates whose own prediction agrees with
// the answer, divided by the weight of all candidates that were asked. A late candidate agrees with nothing, so
// stragglers cost confidence, not time (section 5.2.2). In a numeric ensemble the running average stands in for a late
// candidate's prediction. A model's own confidence scales its vote.
//
// # What it never does, and its limits
//
// The package keeps nothing between calls, reads no clock, shows the content of queries only to policies that need it,
// and allocates nothing after [New] but the values of Valuers. It does not decide which models the plan leaves out: it reports what it would ask
// (Shares) and what each answer is worth (Gains), and respects Allowed and Limits. A function has at most 64
// candidates, because a set of candidates is one machine word.
//
// Losses are taken as given. Feedback that depends on the answer, or that comes for some answers only, biases every
// policy. Exp3 learns nothing from a query whose p is not known. Gateways that learn at the same time from the same
// state can together overshoot what one would do (a log-weight beyond the bound, a count below 0). Both are clamped
// when read and recover in time. Counts in a state are discounted, so they are not totals.
package selection
