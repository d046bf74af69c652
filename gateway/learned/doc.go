// Package learned keeps what selection policies have learned: a state for each function, and one for each context of it (a
// user, a session, a dialect), in memory, bounded, and written behind to a store. It gives policies, which are pure and
// remember nothing, their memory.
//
// # What it promises to the gateway
//
//   - [Function.Select], [Function.Combine] and [Function.Observe] never wait for the store, whether it is slow, away or hung,
//     and allocate no memory in steady state.
//   - A context that is seen for the first time is served at once, from the function's global state, and follows that until
//     something is learned of it.
//   - Memory is bounded: by the contexts of each function and by the states that wait for the store. Neither holds pointers:
//     the garbage collector sees a few chunks, however many contexts there are.
//   - Candidates may change at any time without a loss of what was learned of the others ([Table.Declare] has the rules).
//
// And to who runs several gateways over one store: each delta is counted once, whatever replies are lost, and gateways that
// have written and read have the same numbers, up to rounding. A gateway that only predicts follows the others. A crash loses
// what was learned since the last flush, and nothing else.
//
// # Numbers
//
// A state is a vector of numbers, a row for each candidate, which policies only ever add to. So what several gateways have
// learned is a sum, and its order does not matter. For a state in which something was learned that the store has not
// confirmed there is a ledger of three vectors, and always
//
//	what policies see = total (known to be in the store) + flying (sent, not answered) + delta (not sent)
//
// A flush makes flying of delta and sends it with a number that increases. If the call fails, nobody knows whether it was
// applied: the same update is sent again under the same number, which the store applies once, and new deltas gather behind
// it. The answer is the store's total with everybody's deltas: it replaces total, and flying is empty. What a read brings
// replaces total, too, but for a state with something flying, where nobody could say whether it is part of what came. One
// goroutine speaks with the store, one call after the other, so an answer is never older than what is known.
//
// In the store a number is called by its candidate and its slot (m@2/0), so that it does not matter which candidates a
// gateway has, or in which order. With a delta goes a Base, what the state started from here, for the case that the store has
// no such number: whoever writes first decides. A row is sent when something was learned in it, all rows while the store is not
// known to have them: also after it has lost its data, when the gateways' memories are the copy that it is given back.
//
// Nothing is added to a state in the store before it has been read once: the store may have rows of a version that is no
// longer a candidate, which the present one inherits. See takeFirst in layout.go.
//
// # Contexts
//
// A context lies in one of up to sixteen shards by a 128-bit hash with a seed of this process, and is verified by its bytes. A
// shard has a lock, an index, vectors in chunks and lists threaded through its entries by index: by use, those the store is to
// be asked for, those with something to send. When it is full, the context that was used least recently leaves: if the store
// has all of it, it is dropped, and read again when it comes back; if not, it stays in the index until it has been written,
// and counts among the pending ones. Since each shard evicts by itself, a function may hold a few per cent less than its bound.
// A context of more than [MaxContextBytes] has no state of its own.
//
// Policies are called under the lock of the state that they see. The global state has a lock of its own, which readers share.
// Locks are taken in this order: Table.mu (declarations and the writer, never a query), a shard, the global state, the writer's
// inbox.
//
// # When candidates change
//
// Another order or set of candidates is another layout, and all states move to it, shard by shard, while queries go on: who
// finds a shard moved goes on to the next layout. A [Function] of before still serves the queries that have begun with it: it
// sees the states as they were, and its feedback is translated by candidate. What was learned of a candidate that is removed,
// and was not yet sent, is lost to the store; what was sent stays there, and is found again if the candidate comes back.
//
// # When the store is away
//
// The writer tries again after 100 ms, 200 ms and so on up to five seconds. Deltas wait in their ledgers, as sums: a state waits
// once, however much feedback it has had. More than Config.MaxPending contexts are not kept waiting: what is learned of
// others is used here, and counted as lost. A state that the store refuses for good, because something else lies under its name
// there, is kept in memory only; if that is mended by deleting it, the next update brings the state back.
//
// # What it never does
//
// It knows no policy and no query, opens no store and closes none, and forgets no context in the store: that is where they
// live, and only [Table.Forget] takes them away, with their function. It makes no promise about the order in which gateways
// see each other's feedback, nor does it merge policies whose states are not sums.
//
// # Reading
//
// function.go is what queries call, table.go what declarations and metrics do. ledger.go and layout.go are the arithmetic,
// shard.go and arena.go the memory, states.go joins them. writer.go and reader.go speak with the store. report.go is for people.
package learned
