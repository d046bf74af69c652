// Package drift says how far what a model version is asked, and what it answers, has moved from what it was validated with. A model
// goes bad silently when its inputs change: it still answers, in time and in the right shape. This is the warning.
//
// # Who does what
//
// [NewBaseline] looks at the queries and answers of a version's validation once and keeps a summary, which never changes. A [Watch]
// compares with it: whoever answers queries hands a sample of them to Observe, whoever shows the version's status asks for Report.
// Observe reads the values during the call and keeps none of them.
//
// # What is compared
//
// Each tensor is looked at as a few features, each a distribution over bins:
//
//   - a numeric tensor of fixed shape: each of its elements, or 64 evenly chosen ones. Its bins have equal parts of the validated values,
//     a tenth each where there are enough; a value that many share, such as the black of a picture's border, has a bin of its own, and so
//     have values that are not finite;
//   - a numeric tensor of open shape: how many elements it has, and their mean;
//   - BYTES: their length; with a rank, how many elements there are and their mean length;
//   - outputs that are labels, which are whole numbers, booleans, or short BYTES of at most 64 different values: each label, and the rest.
//
// For each feature there is the population stability index, Σ (s−v)·ln(s/v), where v and s are a bin's parts of what was validated
// and of what is served (E. M. Lewis, An Introduction to Credit Scoring, 1994; N. Siddiqi, Credit Risk Scorecards, 2006). It
// is Jeffreys's divergence (Kullback and Leibler, On Information and Sufficiency, 1951): symmetric, 0 for equal
// distributions. By these books' rule of thumb nothing has changed below 0.1, and much from 0.25 on. A worked example: of two labels one
// had half of the answers and now has 70 %: 0.2·ln(0.7/0.5) + 0.2·ln(0.5/0.3) = 0.17.
//
// # Why chance does not raise an alarm
//
// Two samples of n and m from one distribution over B bins do not have the index 0: (index)/(1/n + 1/m) follows about a χ² distribution of
// B−1 degrees of freedom (B. Yurdakul, Statistical Properties of Population Stability Index, 2018), so that with 100 validated and
// 1,000 served queries and ten bins it is 0.1 on average when nothing has changed. So this mean is taken off, and an index that
// chance would give to one feature in 300,000 is reported as 0: with hundreds of features and a report every second an alarm is one.
// With few queries only much drift is seen, then. A bin has at least five validated values, and below 50 validated or 200
// served queries nothing is reported.
//
// What is served is what was observed lately: the last 4,096 to 8,192 queries.
//
// # What it never does, and its limits
//
// It starts nothing, reads no clock and never waits: Observe lets a query go when another goroutine is counting one, allocates nothing,
// and reads at most 1,024 elements of a tensor of open shape. Data of a wrong length is counted as not finite, not trusted.
// A baseline has at most 512 features of at most 65 bins; that of a model with 64 inputs and a label takes some 30 KiB, a watch 8 KiB.
//
// Features are compared one by one: what changes only in how they hang together is not seen. Queries that depend on one another, such as
// one caller's thousand, look like drift, and are: the mix has changed. Nothing says whether the answers have become worse; feedback does.
package drift
