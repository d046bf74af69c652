// Package cache is the prediction cache. A query that was evaluated before, or is being evaluated now, is not evaluated
// again. It implements Clipper's Predict(m: model, x: input) → y: output (NSDI 2017, section 4.2), between selection
// and the scheduler: a request that never blocks, and a fetch that only looks. Feedback by input also finds its
// predictions here.
//
// # Duties of the caller
//
//   - [Cache.Model] makes a handle for each model version, which its declaration owns; [Model.Drop] ends it.
//   - For each query: [Cache.Key] once, and [Model.Request] for each model that is asked, with a [Waiter] that is a
//     field of the pooled query. The salt is part of the comparison. If a model receives the caller's context, the
//     context must be in the salt, or one caller would get another's prediction.
//   - [Hit]: the outputs are in the waiter. [Bypass]: the cache takes no part in this query.
//   - [Lead]: the caller evaluates the query and calls [Waiter.Fill] or [Waiter.Fail] exactly once, however late. Until
//     then the entry is pending.
//   - [Wait]: another query leads the same input. The waiter's [Owner] is called when the leader has ended, or
//     [Waiter.Cancel] removes the waiter. Each waiter has its own deadline, at which the caller's timer cancels it. The
//     cache has no clock.
//
// # What it promises
//
//   - A query never gets another input's prediction. A key is 128 bits of a hash and only says where to look. Salt,
//     dimensions and bytes are compared, and a different input is a collision, which bypasses the cache. (Clipper
//     compared only 64 bits of hash.)
//   - An input is evaluated once at a time for each model. Concurrent queries share that answer, except those that want
//     it more than 5 ms before the leader does ([Waiter.Until]): they bypass the cache.
//   - Every waiter ends exactly once: its owner is called, or a Cancel returns true.
//   - A failed or lost prediction leaves no entry: the next request leads. (In Clipper such an entry stayed for ever.)
//     A prediction that arrives after every deadline is still kept.
//   - After Drop, nothing of a model is found or kept, immediately and whatever is in flight. Waiters of a flight still
//     get its outputs.
//   - Memory stays below the given bound, which counts everything: inputs, outputs, unused ends of blocks, the index,
//     the ghosts of evicted entries, and flights. Pending entries also count. They cannot be evicted, so they get at
//     most half of each shard, and their number is bounded. Beyond that Request returns Bypass, as it does for entries
//     larger than [MaxEntryBytes] or a quarter of a shard.
//   - No call waits for anything but a shard's lock. The lock is held for a look-up and the copy of one entry, and to
//     evict enough for it. Owners are called without a lock.
//   - Once the cache has reached its size, it allocates nothing.
//
// # How it works
//
// The cache is divided by key into shards, each with its own lock, index and memory. An entry is a chain of blocks of
// 128 bytes. The first block has the entry's metadata, and all blocks have parts of its input and outputs. With a
// single block size, no memory is lost between entries of different sizes, whatever was there before. A chain costs a
// few nanoseconds for each block. Blocks have no Go pointers, so the garbage collector does not scan a cache of
// gigabytes. The index refers to an entry with a part of its hash, so a miss reads one line of the index and no entry.
// Entries of several models with the same key are told apart by the version's serial number. Serial numbers
// are never reused, which makes Drop immediate; its sweep then frees the memory.
//
// Eviction is CLOCK, as in Clipper, preceded by a probation queue; see eviction. bench/cmd/cache compares it with plain
// CLOCK and with otter, a well-maintained library with W-TinyLFU. Its hit ratios are like otter's, and better than
// plain CLOCK's except where the popular inputs change all the time. A hit costs more CPU than otter's, because the
// input is compared through a chain of blocks. A miss costs less, because nothing is allocated. The other requirements
// decided for our own cache. A library's loader blocks its waiters. Coalescing with deadlines, pending entries,
// dropping a version and the exact bound would all have to be built around it, with a second index.
//
// # What it never does
//
// It never evaluates or logs, starts no goroutine, reads no clock and has no time to live: a model version is
// immutable, so its predictions stay valid. Do not use the cache for a model that is not deterministic, for example one
// that draws random numbers or reads the time. The cache does not check outputs; the leader is responsible for them. It
// is not shared between gateways and does not survive the process. Keys are meaningless elsewhere, because each cache
// hashes with its own seed.
package cache
