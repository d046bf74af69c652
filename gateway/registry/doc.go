// Package registry decides about the versions of a model: which ones should be loaded, which one serves, what to load
// and unload next, what a promotion or rollback changes, and when a roll-out that learns from feedback has a verdict.
// It is TensorFlow Serving's aspired versions manager (Olston and others, "TensorFlow-Serving: Flexible,
// High-Performance ML Serving", 2017, sections 2.1.1 and 2.1.2) as pure functions: a snapshot goes in, decisions come
// out.
//
// It promises operators that a new version takes over only after it has passed, that a failure leaves the old version
// serving, and that a version that was rolled back is not loaded again automatically. It promises its caller that it
// has no memory: calling it twice, or again after a crash, is the same as calling it once. It loads nothing, has no
// goroutine, clock or lock, and knows neither replicas nor queries. gateway/server describes what happened and carries
// out the decisions. Sources of versions are in gateway/registry/watch.
//
// # States of a version
//
//	Declared ──▶ Loading ──▶ Validating ──▶ Available ──▶ Draining ──▶ Declared
//	                └───────────┴──▶ Rejected ──▶ Declared
//
// [State.Next] has all legal transitions. A version gets traffic when it is Available: a replica is ready, and warm-up
// and validation have passed. A version that later loses all its replicas stays Available and is Troubled. A rejected
// version stays Rejected until it is declared again. Do not make it Declared just because it is not wanted at the
// moment, or it is retried whenever it is wanted again.
//
// # The caller's duties
//
// After every change, for one model at a time:
//
//  1. build m from what is known, with the published m.Serving;
//  2. compute s = [Serving](m), publish it, and set m.Serving = s;
//  3. take the steps of [Next](m), in order: Load makes a version Loading and gives it replicas, Unload makes it Draining (or Declared,
//     if nothing of it ran), Resume makes it Available again;
//  4. forget a version that is Gone once it is Declared or Rejected.
//
// The order of 2 and 3 ensures that traffic leaves a version before it is unloaded: under the availability policy, the
// version in m.Serving is never unloaded while it is available and any version is wanted. A caller that takes only some
// of the steps, or is killed between two of them, loses nothing: the remaining steps are returned again.
//
// # Which versions are wanted
//
// [Aspired] returns the versions that the traffic spec's policy selects, or the source's policy if the spec has none.
// "all" selects all declared versions, "specific" the listed ones, "latest: n" the n newest, where
//
//   - a rejected version does not count, so the next older one is selected instead, and a broken newest version does
//     not unload the good one;
//   - a Failing version does not count either, but is still wanted: after a restart with a broken newest version, the
//     one before it is loaded and serves, and the newest one takes over if it starts after all;
//   - if the source asks for it ([Model].Spare), the version before the serving one is wanted too, as a spare that is
//     kept asleep ([Spare]): the last one that is known to work, or if none has ever served, the newest one;
//   - a version that a split, a shadow or a roll-out tries out does not count either: with latest: 1, both the canary
//     and the serving version are loaded (section 2.1.1: "load the newest version without unloading the older one").
//
// In addition, these are always wanted: the pinned version, versions that rules try out, versions that a function names
// (Named), and versions with a label, because /v2/models/digits/versions/canary must answer. Being named does not make
// a version answer for the model.
//
// A rollback {from: 4, to: 3} adds the declared versions newer than 3 and not newer than 4 to the set of versions that
// were rolled back (rolled_back: ["4"]). The set is excluded from every policy and every label. A function, a pin or a
// rule that names an excluded version still gets it. A version leaves the set only when it is promoted: "latest" must
// never bring a bad version back, also not when a newer one has served since and fails. After a rollback of 4 in favour
// of 3, a rollback of 3 in favour of 2 is {from: 4, to: 2} with the set 3 and 4. So a version that was rolled back
// serves again only if it is named (a promotion, a pin, a rule), or if there is no other. Version 2 is wanted, and
// serves, until a newer version that is not in the set is available and may serve.
//
// Specs of earlier gateways have no set. Their rollback excludes all versions newer than "to" and not newer than "from",
// and the next promotion or rollback makes a set of it.
//
// If two versions cannot be loaded at the same time (transition: resources), some of these rules would load two without
// need. There, a source that wants all its versions gets only its newest; a label does not keep a version loaded; a
// pinned version counts among "latest"; and the version that was rolled back to gives way as soon as a version newer
// than the bad one is declared. A version that is named explicitly is still loaded in addition: a shadow needs two
// versions in memory.
//
// # Which version serves
//
// [Serving] returns the first of these that is available:
//
//  1. the version that is requested by name: pinned, or rolled back to;
//  2. the version that serves now, if the requested one is not available (yet);
//  3. the newest version that the policy wants and no rule tries out;
//  4. the version that serves now, whatever it is; then the newest one that is leaving.
//
// A Troubled version comes after all untroubled ones. That includes the version requested by name: while it has no
// replica, another one serves that the policy wants and that was not rolled back. If there is none, queries wait.
// A version that is Asleep while another can answer counts as not available, and is woken first ([Successor]). If none
// of these is available, queries wait for the one that will be: the requested version, otherwise the newest that the
// policy wants. Only if there is no such version does one serve that normally never would: a version that only a
// function or a label names, one that a rule tries out, or one that was rolled back. This also holds while a gateway
// starts: a canary that is ready before the old version does not get the old version's queries. At a start, when
// nothing serves yet, a pinned version that is loading comes before other versions that are available.
//
// # The next steps
//
// [Next] follows one of the two policies of section 2.1.2.
//
// availability: "loads a new version of a servable before unloading the old one". Everything that is wanted is loaded
// at once. An unwanted version is unloaded when a version that may serve is available and has been published. While
// nothing is available, the most advanced unwanted version that is loading continues, unless a version was requested by
// name. Otherwise, if versions arrived faster than they load, none would ever become available. So at most one version
// is loaded in addition to the wanted ones. A deleted version (Gone) serves until another can, or until nothing is
// wanted.
//
// resources: "does the opposite". An unwanted version is unloaded even if it serves. Only when nothing of it runs any
// more, not even to drain, is another version loaded. Meanwhile queries wait. If the new version is rejected or does
// not start, the old one is loaded again, under "latest". One that does not start is tried again when the model's rules
// change. A pinned version keeps its room.
//
// Under both policies, if nothing is wanted everything is unloaded. The exception is a request for versions by name of
// which none is declared. Then the serving version stays, because the request is a mistake or the versions are still to
// come.
//
// # Roll-outs that learn
//
// A roll-out's policy (gateway/selection) moves answers to the better version, within [Cap], which grows with the
// feedback. [Judge] ends the roll-out. It compares mean losses, failure rates and 99th percentiles, with confidence
// bounds that tolerate repeated looks. How long it takes depends on how different the versions are. With losses of 0
// and 1, a version that is wrong in 30 % of its answers instead of 5 % is detected by the time the feedback suffices
// (200 answers). Two versions that are both wrong in 10 % need 4,050 answers each before "at most 2 % worse" is
// certain. Losses must be from 0 to 1. If only some answers are judged, a version is judged by those.
//
// # Limits
//
// A snapshot of n versions costs O(n log n) and allocates a few slices: it is meant for changes, not for queries.
// Versions are ordered by api.CompareVersions, and two names with the same number ("1", "01") alphabetically. Specs are
// not validated: package api checks that a split adds up, or that a rollback's versions are in order. An invalid spec
// gives some result, but no panic.
package registry
