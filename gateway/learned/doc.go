// Package learned keeps what selection policies have learned: one state for each function, and one for each of its
// contexts (a user, a session, a dialect). States live in bounded memory and are written to a store in the background.
// Policies are pure and remember nothing; this package is their memory.
//
// # What it promises
//
//   - [Function.Select], [Function.Combine] and [Function.Observe] never wait for the store, even if it is slow, down
//     or hung, and allocate nothing in steady state.
//   - A new context is served at once from the function's global state, and follows that state until something is
//     learned about it.
//   - Memory is bounded: by the number of contexts of each function, and by the number of states that wait for the
//     store. Neither holds pointers, so the garbage collector sees a few chunks, however many contexts there are.
//   - Candidates may change at any time without losing what was learned about the others ([Table.Declare] has the
//     rules).
//   - If several gateways share one store, each delta is counted once, whatever replies are lost. Gateways that have
//     written and read hold the same numbers, up to rounding. A gateway that only predicts follows the others; of
//     a function that it is not asked for, the global state follows every few seconds. A crash
//     loses what was learned since the last flush, and nothing else.
//
// # Numbers
//
// A state is a vector of numbers, a row for each candidate, and policies only add to it. The learning of several
// gateways is therefore a sum, in any order. A state with deltas that the store has not confirmed has a ledger of three
// vectors, with the invariant
//
//	what policies see = total (known to be in the store) + inFlight (sent, not answered) + delta (not sent)
//
// A flush moves delta to inFlight and sends it with a sequence number that increases. If the call fails, it is unknown
// whether the update was applied. The same update is sent again with the same number, which the store applies once,
// while new deltas collect in delta. The answer is the store's total, with all gateways' deltas: it replaces total, and
// inFlight becomes empty. A read also replaces total, unless something is in flight, because the read may or may not
// include it. One goroutine makes all calls to the store, one at a time, so an answer is never older than what is
// already known.
//
// In the store a number is named by its candidate and its slot (m@2/0), so it does not matter which candidates a
// gateway has, or in which order. A delta is sent with a Base, the value that the state started from on this gateway.
// The store uses the Base if it has no such number; the first writer decides. Normally only rows with new learning are
// sent. All rows are sent while the store is not known to have them, for example after it lost its data: it is then
// refilled from the gateways' memories.
//
// Nothing is added to a state in the store before the state has been read once, because the store may have rows of a
// version that is no longer a candidate and whose successor inherits them. See takeFirst in layout.go.
//
// # Contexts
//
// A context is assigned to one of up to sixteen shards by a 128-bit hash, seeded for each process, and is verified by
// its bytes. A shard has a lock, an index, vectors in chunks, and lists that link its entries by index: by last use, to
// be read, and to be sent. A full shard evicts the context that was used least recently. If the store has all of its
// state, the context is dropped and read again when it comes back. Otherwise it stays in the index until it has been
// written, and counts as pending. As each shard evicts on its own, a function may hold a few per cent fewer contexts
// than its bound. A context longer than [MaxContextBytes] has no state of its own.
//
// Policies are called under the lock of the state that they see. The global state has a lock of its own, which readers
// share. The lock order is: Table.mu (declarations and the writer, never a query), a shard, the global state, the
// writer's inbox. A value's lock is taken after a shard's or the global state's, or alone.
//
// # Values
//
// What a [selection.Valuer] has learned is not a sum: it is a value, one for each function, with a lock of its own.
// value.go keeps it, and values.go its copy in the store, with the candidates that it is of. A value that is a
// [selection.Merger] is saved if the store still has what this gateway read last; otherwise what others have added is
// merged, and it is saved again. For a value that cannot be merged the store gives a lease to one gateway at a time. That one
// learns, and the others read what it saves. If it does not renew the lease for five seconds, another one takes it, and
// the store refuses what the first one saves later. An answer that was lost is handled as above: the same save is sent
// again, with the same number, and counts once.
//
// While two processes hand over a file, the one without it goes on with the value in memory. What it learns then is not
// passed on.
//
// # When candidates change
//
// A different order or set of candidates is a different layout. All states move to it, shard by shard, while queries go
// on: a query that finds a moved shard continues with the next layout. An earlier [Function] still serves the queries
// that started with it. It sees the states as they were, and its feedback is translated by candidate. Unsent learning
// about a removed candidate is lost to the store. What was sent stays there and is found again if the candidate
// returns.
//
// # When the store is down
//
// The writer retries after 100 ms, 200 ms and so on, up to five seconds. Deltas wait in their ledgers as sums, so a
// state waits once, however much feedback it gets. At most Config.MaxPending contexts wait. What is learned about
// others is used in memory and counted as lost. A state that the store refuses permanently, because something else is
// stored under its name, is kept in memory only. If the conflicting entry is deleted, the next update writes the whole
// state again.
//
// # Export, import and reset
//
// [Table.Export] and [Table.Replace] run on the writer's goroutine between its other calls. First everything that is pending is written, so
// that the store has what memory has, and the global state is read, so that memory has what other gateways have written. A state in the store is replaced by adding what it differs from the new one: the other gateways follow
// as they follow any learning, and what they have not sent yet is added to the new state. Contexts that are only in the store are listed and
// replaced there, without coming into memory.
//
// # What it never does
//
// It knows nothing about policies or queries, and neither opens nor closes the store. It deletes no context from the
// store: only [Table.Forget] does, together with the function. It does not promise in which order gateways see each
// other's feedback.
//
// # Reading order
//
// function.go is called by queries, table.go by declarations and metrics. ledger.go and layout.go are the arithmetic,
// shard.go and arena.go the memory, and states.go joins them. writer.go, reader.go and values.go call the store. report.go
// describes states for users; edit.go and edit_value.go export and replace them.
package learned
