// Package cache keeps what models have answered, so that a query that was evaluated before, or is being evaluated now, is not
// evaluated again. It is Clipper's Predict(m: model, x: input) → y: output (NSDI 2017, section 4.2), between selection and the
// scheduler: a request that never blocks, and a fetch that only looks. Feedback by input finds its predictions here too.
//
// # Whose duties are which
//
//   - [Cache.Model] makes a handle for each model version, which its declaration holds; [Model.Drop] ends it.
//   - For each query: [Cache.Key] once, and [Model.Request] for each model that is asked, with a [Waiter] that is a field of
//     whatever is pooled with the query. The salt is part of what is compared: a model that is given the caller's context must have
//     it there, or one caller would get another's prediction.
//   - [Hit]: the outputs are in the waiter. [Bypass]: the cache has nothing to do with the query.
//   - [Lead]: the caller evaluates the query and calls [Waiter.Fill] or [Waiter.Fail] exactly once, however late. Until then the entry is
//     pending.
//   - [Wait]: another query leads the same input. The waiter's [Owner] is called when that one has ended, or [Waiter.Cancel] takes
//     the waiter out. Each waiter has a deadline of its own, and the caller's timer cancels it then. The cache has no clock.
//
// # What it promises
//
//   - No query is answered with another's prediction. A key is 128 bits of a hash, and says only where to look: salt, dimensions and
//     bytes are compared, and an input that is not the same is a collision, which bypasses the cache. (Clipper compared 64 bits
//     of hash and nothing else.)
//   - An input is evaluated once at a time for each model. Everybody who asks meanwhile gets that answer, but for those who want it
//     more than 5 ms sooner than the leader ([Waiter.Until]): they bypass the cache.
//   - Every waiter ends once: by its owner being called, or by a Cancel that returned true.
//   - A prediction that failed or was lost leaves nothing behind: the next who asks leads. (In Clipper such an entry stayed for
//     ever.) One that comes after everybody's deadline is kept all the same.
//   - After Drop nothing of a model is found or kept, at once and whatever is in flight; who waits for a flight still gets its
//     outputs.
//   - Memory stays below the bound that was given, and that bound counts everything: inputs, outputs, the unused ends of blocks, the
//     index, the traces of who was evicted, flights. Pending entries count too; they cannot be evicted, and so they have half of
//     each shard at most, and a bounded number. Beyond that Request says Bypass, as it does for entries of more than
//     [MaxEntryBytes] or a quarter of a shard.
//   - No call waits for anything but a shard's lock, which is held for a look-up and the copy of one entry, and to evict
//     enough for that. Owners are called without a lock.
//   - Once the cache has its size, nothing is allocated.
//
// # How
//
// The cache is cut into shards by the key, each with a lock, an index and memory of its own. An entry is a chain of blocks of 128
// bytes: the first has what is known of it, all have parts of its input and outputs. One size of block for everybody means
// that no room is lost between entries of different sizes, whatever was there before; a chain costs some nanoseconds for each of its
// blocks. Blocks have no Go pointers, so a cache of gigabytes is nothing to the garbage collector. Entries of several models
// that were asked with one key lie beside each other, told apart by the version's serial number, which is never used again:
// that is what makes Drop immediate. Its sweep then gives the memory back.
//
// Who is evicted is decided by CLOCK, as in Clipper, with a probation before it; eviction says how. bench/cmd/cache compares that
// with plain CLOCK and with otter, a well-kept library with W-TinyLFU. Its hit ratios are like otter's, and better than plain CLOCK's
// except where what is popular changes all the time; a hit costs more CPU than otter's, because the input is compared through a
// chain of blocks, and a miss less, because nothing is allocated. What decided for a cache of our own is the rest: a library's loader
// blocks who waits, and coalescing with deadlines, pending entries, dropping a version and the exact bound would all have to be
// built beside it, with a second index.
//
// # What it never does
//
// It never evaluates, never logs, starts no goroutine, reads no clock and knows no time to live: a model version is immutable, so that what
// it said stays true. A model of which that is not so (one that draws random numbers, or reads the time) is not to be asked through a
// cache. It does not refuse garbage: who fills an entry has judged the outputs. It is not shared between gateways and does not
// outlive the process; keys mean nothing elsewhere, for each cache hashes with a seed of its own.
package cache
