// Package registry decides what becomes of the versions of a model: which are to be loaded, which one answers, what is to be loaded
// and unloaded next, what a promotion and a rollback change, and when a roll-out that learns from feedback has shown enough. It is
// TensorFlow-Serving's manager of aspired versions (Olston and others, "TensorFlow-Serving: Flexible, High-Performance ML Serving", 2017,
// sections 2.1.1 and 2.1.2) as arithmetic: a snapshot goes in, decisions come out.
//
// It promises operators that a new version takes over only when it has shown that it can, that what fails leaves the old one serving,
// and that a version that was rolled back is not loaded again by itself; and whoever drives it, that it remembers nothing, so that to
// ask after a crash, or twice, is the same as to ask once. It loads nothing, has no goroutine, clock or lock, and knows neither
// replicas nor queries: gateway/server gives it what happened and does what it says. Sources of versions are in gateway/registry/watch.
//
// # The life of a version
//
//	Declared ──▶ Loading ──▶ Validating ──▶ Available ──▶ Draining ──▶ Declared
//	                └───────────┴──▶ Rejected ──▶ Declared
//
// [State.Next] has all legal steps. A version gets traffic when it is Available, which is when a replica is ready and warm-up
// and validation have passed. One that loses all its replicas later stays Available and is Troubled. A rejected one stays so until
// it is declared anew: it must not be made Declared merely because nobody wants it at the moment, or it is tried again whenever it is
// wanted again.
//
// # The caller's duties
//
// After everything that happens, and for one model at a time:
//
//  1. make m from what is known, with m.Serving as it was published;
//  2. take s = [Serving](m), publish it, set m.Serving = s;
//  3. take the steps of [Next](m), in order: Load makes a version Loading and gives it replicas, Unload makes it Draining (or, if nothing of it
//     ran, Declared), Resume makes it Available again;
//  4. forget a version that is Gone once it is Declared or Rejected.
//
// The order of 2 and 3 is what makes traffic leave a version before it is unloaded: under the availability policy what m.Serving names is never
// unloaded while it is available and something is wanted. A caller that does only a part of the steps, or none, or is killed
// between two, loses nothing: the others are said again.
//
// # What is wanted
//
// [Aspired] are the versions of the traffic spec's policy, else of the source's. "all" are all that are declared; "specific" are those that
// are named; "latest: n" are the n newest, where
//
//   - a rejected one has no place, so that the next older one takes it and a broken newest version does not unload the good one;
//   - one that a split, a shadow or a roll-out tries out has no place either: with latest: 1, the canary and the one that serves are both loaded
//     (section 2.1.1: "load the newest version without unloading the older one").
//
// Wanted besides, whatever the policy says: the version that is pinned, those that rules try out, those that a function names (Named), those
// that have a label, for /v2/models/digits/versions/canary must answer. Such a name alone does not make a version the model's answer.
//
// A rollback {from: 4, to: 3} keeps out all versions that are newer than 3 and not newer than 4, from every policy and every label; a
// function, a pin or a rule that names one still has it. It does so as long as it is in the spec, also after it is [Over]: "latest" must
// never bring the bad version back. To leave it there costs nothing. The promotion of 4, or of something newer, takes it away; that of an older
// one narrows it to what is newer than that. The next rollback takes its place, and what it keeps out only grows at its newer end: after
// {from: 4, to: 3} a rollback of 3 in favour of 2 is {from: 4, to: 2}, for {from: 3, to: 2} would let 4 in again. So a version that was
// rolled back serves again only when somebody names it (a promotion, a pin, a rule), or something newer has taken over since, or there is
// nothing else. Version 3 is wanted, and answers, until a version newer than 4 is available and may serve.
//
// Where two versions cannot be loaded at a time (transition: resources) some of this would load two for no good reason. There, a source that
// wants all its versions gets its newest; a label keeps nothing loaded; a pinned version takes one of the places of "latest"; and the one
// that was rolled back to makes way as soon as a newer one than the bad one is declared. What is named on purpose is still
// loaded beside it: a shadow needs two versions in memory, and who declares one has them.
//
// # Who serves
//
// [Serving] is, of the versions that are available, the first of
//
//  1. the one that is asked for by name: pinned, or rolled back to;
//  2. the one that serves now, if the one that is asked for is not available (yet);
//  3. the newest that the policy wants and no rule tries out;
//  4. the one that serves now, whatever it is; the newest that is on its way out.
//
// One that is Troubled comes after all that are not, except that who is asked for by name answers all the same. One that is Asleep beside one
// that answers is woken first, and counts as not available until then ([Successor]). If nothing of this is
// available, queries wait for the one that will be: the one that is asked for, else the newest that the policy wants. Only if there is no
// such either do those answer that never should for all: what a function or a label names, what a rule tries out, what was rolled
// back. That is also so while a gateway starts: a canary that is ready before the old version does not get the old one's queries. A
// start is also why a pinned version that is loading comes before others that are available, when nothing serves yet.
//
// # The next steps
//
// [Next] follows one of the two policies of section 2.1.2.
//
// availability: "loads a new version of a servable before unloading the old one". Everything that is wanted is loaded, at once. What is not
// wanted is unloaded when something that may answer is available and the gateway has taken that up. While nothing is available, one that is
// not wanted any more and was being loaded goes on, the furthest: where versions come faster than they load, there would never be any
// (unless a version was asked for by name). So at most what is wanted and one more version are loaded. A version that was deleted (Gone) serves
// until another can, or nothing is wanted.
//
// resources: "does the opposite". What is not wanted is unloaded, also if it serves; only when nothing of it runs any more, not even to drain, is
// anything loaded. Meanwhile nobody answers, and queries wait. If the new version is rejected the old one is loaded again, under "latest".
//
// Under both, if nothing is wanted everything is unloaded, except when versions are asked for by name of which none is there: what serves goes
// on then, for it is a mistake, or they are still to come.
//
// # Roll-outs that learn
//
// A roll-out's policy (gateway/selection) moves answers to the better version, within [Cap], which grows with the feedback. [Judge] ends it: it
// compares mean losses, failures and 99th percentiles with confidence bounds that bear being looked at again and again. How long it takes
// follows from how far apart the versions are: with losses of 0 and 1, one that is wrong in 30 % of its answers instead of 5 % is found out
// by the time the feedback is enough (200 answers); two that are both wrong in 10 % need 4,050 answers each before "at most 2 % worse" is certain.
// Losses must be from 0 to 1. A version whose feedback says little, because only some answers are judged, is judged by that little.
//
// # Limits
//
// A snapshot of n versions costs O(n log n) and allocates a few slices: it is for changes, not for queries. Versions are ordered by
// api.CompareVersions; two names of the same number ("1", "01") by their letters. Specs are taken as they are: that a split adds up, or that a
// rollback's versions are in order, is for api to check; a spec that breaks such rules gets some answer, and no panic.
package registry
