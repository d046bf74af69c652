// Package state stores what is declared (models, functions, traffic rules, and the history of their changes) and what selection policies
// learn. The store outlives the gateway. It is a bbolt file, or a Redis server that several gateways may share. [Open] returns a
// [Backend], which is both an [Objects] and a [Store].
//
// # Guarantees for declared objects
//
// [Objects] are documents by kind and name; this package does not interpret them. All objects of a store share one revision. A [Commit]
// is made against a revision, applies all or nothing, and increments the revision. If two gateways commit against the same revision, one of
// them gets a [*StaleError] and changes nothing. A commit that returned without an error is on disk, or in Redis as durable as the server's
// settings make it.
//
// A commit with a given ID is applied at most once, however often it is sent. The store remembers the last 2,048 IDs. If the answer of a
// Redis server is lost, Commit retries for about three seconds and then returns an [*UnknownError]; sending the same commit again once the
// server is back resolves it. If the server hung, a commit that was given up may still be applied later, as long as no other commit came first.
//
// Changes returns a consistent snapshot, never part of a commit. A caller that passes the revision of its last answer misses nothing. When the
// store cannot tell what has changed, it returns everything and sets Complete. It also does so when a server has lost commits, because
// a stale replica was promoted or the server restarted empty. The opened store remembers which commit made each revision that it has
// returned, so it notices lost commits even after others have made as many new ones. The caller decides whether to trust such a server:
// its revision is lower than before, unless others have caught up.
//
// # Notes
//
// [Notes] are small documents in series that the gateway can do without, such as samples of what was learned. They are no objects: they have no
// revision, so writing one never makes a declaration stale, and the later of two writers wins. A file has them in the bucket "notes", which is made
// with the first one; Redis has a hash for each series, xebec:notes:SERIES. They are not part of the formats below: a program that does not know
// them leaves them alone.
//
// # Guarantees for learned states
//
// A [Store] keeps a set of named numbers for each function, policy and context. Each number is the sum of what its writers have added. The
// store does not interpret the numbers and never chooses between two writers' values. It only adds, so gateways that share a server reach
// the same sums in whatever order their updates arrive. The arithmetic is float64, and values are read back to the last bit.
//
// A number that the store does not have starts at the Base of the first update that mentions it. If two gateways start from
// different guesses, the first update's Base wins, and of the other gateway only the Delta counts.
//
// An update counts at most once, however often it is sent, so a caller that retries until it gets an answer has it counted exactly once. Each
// opened store is a writer with a random 128-bit name. With each state, the store keeps the last sequence number of each writer, updated in the
// same atomic step as the numbers. An update whose sequence number is not higher is a retry after a lost answer and is ignored.
//
// # Guarantees for values
//
// [Values] are bytes, one for each function and policy, for what is not a sum. A save says which revision it replaces, and is applied if
// that is still the one in the store. For values that only one gateway may change there are leases; a save under an earlier lease is never
// applied. A save is applied once, however often it is sent.
//
// In a file a value is a record in its function's bucket under a key that no state has; the comment of type fileValue defines its encoding.
// The file's holder has every lease. In Redis it is a hash, xebec:policy:FUNCTION::POLICY, whose fields values.lua lists. Both places are
// new names in an old format: an older program neither reads nor changes them, and forgets them with the function.
//
// # Duties of the caller
//
// One goroutine calls Merge; any number may call Load meanwhile. After an error the caller sends the same updates again with the same
// sequence numbers, when it chooses: Merge does not retry, and the package neither queues nor logs. The exception is a [*RefusedError],
// which lists updates that can never be applied because they, or the data under their keys, are invalid; all other updates of the call were
// applied. After Forget of a function the caller sends no more updates for it, including unanswered ones.
//
// # In a file
//
// [OpenFile] keeps everything in a bbolt file, which one process at a time may hold. A second process gets an error that names the holder. The
// bucket "xebec" has the format version. The bucket "policy" has a bucket for each function, with one record for each policy and context; the
// comment of type record defines its encoding. Merge is one transaction and is on disk when it returns. Since a file has one writer at a time,
// a record names only the last writer. Its sequence number matters when a commit reached the disk and then failed.
//
// Objects, the history and the IDs of the last commits are in buckets of their own; object_record.go has the layout. No other process writes to
// the file, so deleted objects are remembered in memory only, and changes are found by scanning all objects.
//
// A file is made under another name and linked to its path when it is complete, so an empty one has lost its content and is refused.
// A truncated or overwritten file is an error and does not end the gateway. bbolt's pages have no checksums, so records have them: a number that
// was altered on disk is refused and never used. Data lost with a page that bbolt can skip looks as if it had never existed. The number
// of objects is stored, so a lost object is noticed. bbolt trusts its pages, and one wrong bit can send it into a loop or onto pages in
// use, so file_check.go verifies their structure before bbolt reads them. Two meta pages name the newest commit and the one before; if either is
// damaged the file is refused, because bbolt would silently go back to the other. When the disk is full, commits fail and acknowledged ones remain.
//
// Each change checks, before and after, that the path still refers to the open file. A file that was removed, or replaced by a copy, would take
// changes and vanish with the process, so the change is refused. Two stat calls cost nothing beside a disk sync. Reads go on working,
// and changes work again once the file is moved back.
//
// A [Handover] lets two gateways have a file one after the other while both serve. Until the new one has it, a copy answers for objects; once
// the old one has let it go, what that one still learns goes through the new one, as another writer.
//
// # In Redis
//
// [OpenRedis] keeps each state in a hash, xebec:policy:FUNCTION:POLICY:CONTEXT. Function and policy are escaped as in URLs so that
// names cannot collide; the context may be any bytes and comes last, unescaped. The hash has a field "n:NAME" for each number and
// "w:WRITER" for each writer's last sequence number and its time by the server's clock.
//
// An update is one run of a script (merge.lua), which checks everything before it writes anything. Runs are sent in pipelines of 128. The first
// call of a pipeline carries the script's text and the others its hash, so a restarted server needs no second round trip. A pipeline
// never has two updates of one state: if the first failed and the second succeeded, a retry of the first would be ignored.
//
// Objects are in eight keys, xebec:objects:*, described in objects.lua. Like merge.lua, that script checks everything before it writes; it also
// tries each command it needs without effect first, and reads in pages of 1,000. Gateways poll for changes several times a second, so that
// poll is not a script but an MGET of two keys. The names of the last 100,000 deleted objects are kept. Each run compares the number of
// entries in all keys, so keys that the server has evicted are an error and are not taken for deleted objects.
//
// If a server is down, full, loading or stopped, a call fails after at most two seconds for the connection and one for an answer, for each
// pipeline, or when its context ends. Errors say what the server answered and what to do, and never contain a password. go-redis's own log is
// off because it repeats what it returns as errors.
//
// Forget scans all names of the database with SCAN and removes the function's with UNLINK, in small steps so that the server can serve
// others in between. An index of each function's contexts would cost a write in every Merge.
//
// # Formats
//
// formats.go lists the formats of files and of Redis databases, with a step from each to the next. The current format is 2 for a file and 1 for
// a database. A store of an older format is converted on first use; a newer one is refused and left unchanged.
//
// A file is converted in the transaction that opens it, so it always has one format or the other.
//
// A Redis database is converted by the first call that finds an older format, because the server may come up after the gateway. A
// database can be too large for one script, so a step has three parts. It moves the two format keys, xebec:format and
// xebec:objects:format, from "1" to "1>2"; it converts, in scripts that take a few milliseconds each; it moves the keys to "2". Every script,
// including those of older programs, first checks its format key, so while the keys are "1>2" no gateway reads or writes anything else. If
// the gateway is killed meanwhile, the keys stay at "1>2", and the next gateway that knows the step starts it again; steps skip what is already
// converted. If two gateways convert at once, the first one to finish moves the keys, and from then on the scripts of the other one
// change nothing. Callers wait for the conversion; when a caller's context ends, the conversion continues without it.
//
// An older gateway that shares the server is locked out from the start of the conversion. It keeps serving from memory. Its commits are
// refused, and what it learns from then on is lost when it exits. There is no downgrade: the older program refuses a converted
// database, as it refuses one whose conversion is incomplete. Back up the data before an upgrade that changes the format.
//
// # Limits
//
// The constants beside [MaxObjects] bound objects. A commit that would exceed them is refused with [ErrTooMany]; the history drops its
// oldest events instead.
//
// A state has at most 4096 fields (64 candidates with 64 numbers each). Names are bounded, and numbers are finite because an infinite one
// could never change again. The same bounds apply to what is read. A state in Redis forgets a writer after a day without updates, or when 256
// other writers have been there since; an update that such a writer sends again counts twice.
//
// What a Redis server has acknowledged is as durable as its settings make it: replication, and appendonly, whose default appendfsync, everysec,
// may write up to two seconds after the answer. A server that restarts without a file is empty, and numbers start at Base again. If the
// server evicts keys (maxmemory-policy), states vanish one by one in the same way, and objects are refused as soon as one key is
// missing: set noeviction. Redis 5 or newer is required. Redis Cluster is not supported because the scripts use keys in several slots.
//
// Package redistest runs real servers for tests, here and elsewhere.
package state
