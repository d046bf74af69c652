// Package drift measures how far a model version's inputs and outputs have moved from those it was validated with. A
// model degrades silently when its inputs change: it still answers in time and in the right shape. Drift is the
// warning.
//
// # How it is used
//
// [NewBaseline] summarises the queries and answers of a version's validation once; the summary never changes. A [Watch]
// compares served queries with it. The query path passes every query to Observe, and the status of the version calls
// Report. Observe reads the values during the call and retains none of them.
//
// # What is compared
//
// Each tensor is reduced to a few features, each a distribution over bins:
//
//   - a numeric tensor of fixed shape: each of its elements, or 64 evenly spaced ones. The bins have equal parts of the
//     validated values, a tenth each if there are enough. A value that occurs very often, such as the black border of a
//     picture, has its own bin, and so do values that are not finite;
//   - a numeric tensor of open shape: the number of its elements, and their mean;
//   - BYTES: the length; with a rank above 0, the number of elements and their mean length;
//   - outputs that are labels (integers, booleans, or short BYTES with at most 64 different values): each label, and
//     all others.
//
// Each feature has a population stability index, Σ (s−v)·ln(s/v), where v and s are a bin's fractions of the validated
// and of the served values (E. M. Lewis, An Introduction to Credit Scoring, 1994; N. Siddiqi, Credit Risk Scorecards,
// 2006). It is Jeffreys's divergence (Kullback and Leibler, On Information and Sufficiency, 1951): symmetric, and 0 for
// equal distributions. By these books' rule of thumb an index below 0.1 means no change, and 0.25 or more a large one.
// For example, one of two labels had half of the answers and now has 70 %: 0.2·ln(0.7/0.5) + 0.2·ln(0.5/0.3) = 0.17.
//
// # Why chance does not raise an alarm
//
// Two samples of sizes n and m from one distribution over B bins do not have index 0. (index)/(1/n + 1/m) is
// approximately χ² distributed with B−1 degrees of freedom (B. Yurdakul, Statistical Properties of Population Stability
// Index, 2018). With 100 validated and 1,000 served queries and ten bins, the index is 0.1 on average although nothing
// has changed. Therefore this mean is subtracted, and an index that chance reaches for one feature in 300,000 is
// reported as 0: with hundreds of features and a report every second, an alarm is real. With few queries only strong
// drift is detected. A bin has at least five validated values, and nothing is reported below 50 validated or 200 served
// queries.
//
// The served values are those of the last 4,096 to 8,192 queries or, if these are more, of the last 10 to 20 seconds.
//
// # What it never does, and its limits
//
// It starts nothing and reads no clock. Observe waits for no more than the counters of another query: it reads the
// values before it takes the lock. Observe allocates nothing, and reads at most 1,024 elements of a tensor of open
// shape. Data of a wrong length counts as not finite. A baseline has at most 512 features of at most 65 bins. For a model with 64 inputs and a label, a
// baseline takes about 30 KiB and a watch 8 KiB.
//
// Features are compared one by one: a change only in their correlation is not detected. Queries that depend on each
// other, such as a thousand from one caller, look like drift, and are: the mix has changed. Drift does not say whether
// the answers have become worse; feedback does.
package drift
