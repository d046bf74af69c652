// Package state keeps what is declared (models, functions, traffic rules, and the history of their changes) and what selection policies
// have learned in a store that outlives the gateway: a file (bbolt), or a Redis server, which several gateways may share. [Open] returns
// a [Backend], which is both an [Objects] and a [Store].
//
// # What it promises of what is declared
//
// [Objects] are documents by kind and name, whose meaning is not this package's. All of a store share one revision. A [Commit] is made for
// a revision, whole or not at all, and raises it by one: of two gateways that commit for the same revision one is told that it is stale
// ([*StaleError]), and has changed nothing. What Commit has acknowledged is on the disk, or as durable as the Redis server's settings make it.
//
// A commit is made at most once, however often it is sent under its ID, and the store remembers the last 2,048. Where the answer of a Redis
// server is lost, Commit asks again by itself for about three seconds, and then says that it does not know ([*UnknownError]): the same
// commit, sent again when the server is back, tells. A commit that was given up may still arrive at a server that had hung, as long as
// nobody else has committed.
//
// Changes shows the store as it was at one moment, and no commit by half. Who follows it by what it was answered last misses nothing; where
// the store cannot say what has changed it returns all there is, and says that this is all. That is so also where a server has lost commits,
// because an older replica became the primary or it was started again empty: the opened store remembers which commit made the revisions
// it has shown, and sees that they are gone even when others have made as many again. Whether to believe such a server is the caller's
// to decide: the revision has then gone back, unless others have been quick.
//
// # What it promises of what is learned
//
// A [Store] keeps, by function, policy and context, a set of named numbers, each of which is the sum of what its writers have added. It
// does not know what the numbers mean, and never decides between two writers' values: it only adds, so that gateways which share a
// server come to the same sums whatever the order of their updates. Sums are float64 arithmetic, and come back to the last bit.
//
// A number that the store has not seen starts at the Base of the update that mentions it first. Of two gateways that both begin
// with a guess of their own, the first one's is taken, and of the other one only what it has learned.
//
// An update is counted at most once, however often it is sent, and so exactly once by a caller who sends it until it is answered. An
// opened store is a writer with a random name of 128 bits. The store keeps, for each state, each writer's last sequence number,
// in the same atomic step as the numbers, and does not apply an update whose number is not higher: its answer had been lost.
//
// # The caller's duties
//
// One goroutine calls Merge; any number may Load beside it. After an error the caller sends the same updates again, with the same
// sequence numbers, when it sees fit: this package does not retry, does not queue and does not log. A [*RefusedError] is the
// exception: it names the updates that will never be taken, for they, or what lies under their keys, make no sense; all others of
// the call were done. Whoever forgets a function sends no more updates for it, the unanswered ones included.
//
// # In a file
//
// [OpenFile] keeps states in a bbolt file, which one process at a time may hold; whoever comes second is told who holds it. The
// bucket "xebec" has the format's version, "policy" a bucket for each function, and there lies one record for each policy and
// context, in the encoding at the head of record.go. Merge is one transaction, on the disk before it returns. Since there is one
// writer at a time, a record names only the last one; the number matters where a commit failed after it had reached the disk.
//
// Objects, the history and the last commits lie in buckets of their own, as object_record.go has it. Nobody writes to the file beside the
// process that holds it, so what was deleted is remembered in memory only, and news are found by walking through all objects.
//
// A file that was cut off or overwritten is an error, not the end of the gateway. bbolt's pages have no check sums, so records
// have: a number that was changed on the disk is refused, never used. What is lost with a page that bbolt can still walk around
// looks as if it had never been; of objects their number is known, so that a lost one is missed. bbolt believes its pages, and one
// wrong bit may send it in circles, or over pages in use; so file_check.go looks at their structure before bbolt follows it. A disk
// that is full refuses commits, and what was acknowledged stays.
//
// Each change looks whether the path still leads to the file that is open, before and after: one that was removed, or in whose place
// somebody has put a copy, would take it all and be gone with the process. Such a change is refused. Two stat calls beside a
// sync of the disk cost nothing. What was read goes on being so, and when the file is moved back it takes changes again.
//
// # In Redis
//
// [OpenRedis] keeps each state in a hash, xebec:policy:FUNCTION:POLICY:CONTEXT. Function and policy are escaped as in URLs, so
// that names cannot run into each other; a context may be any bytes and stands last as it is. The hash has "n:NAME" for each number
// and "w:WRITER" for each writer's last sequence number and when that was, by the server's clock.
//
// An update is one run of a script (merge.lua), which checks everything before it writes anything. Runs go in pipelines
// of 128 states. The first call of a pipeline carries the script's text and the others its hash: a server that was restarted needs
// no second round trip. Two updates of one state are never in the same pipeline, or the first might fail, the second not, and the
// first be taken for a repetition when it is sent again.
//
// Objects lie under eight keys, xebec:objects:*, which objects.lua explains. That script does all but one
// thing: it checks the whole before it writes anything, tries all commands that it will need on nothing, and reads in pages of 1,000. The
// exception is the question whether there is news, an MGET of two keys, for gateways ask it several times a second. What was deleted
// stays known by name for the last 100,000. The numbers of entries in all keys are compared at each run: keys that a server has evicted are
// an error, and not objects that were deleted.
//
// A server that is away, full, loading or stopped is an error after two seconds for a connection and one for an answer at most,
// again for each pipeline, or when the context ends. Errors say what the server said and what to do, and show no password; the
// library's own log is switched off, for it prints what it also returns.
//
// Forget walks through all names of the database with SCAN and drops the function's with UNLINK, in small steps, so that
// others are served meanwhile. The alternative, an index of each function's contexts, would cost every Merge a write.
//
// # Formats
//
// formats.go lists the formats of files and of Redis databases, with a step from each to the next. The present format of a file is 2, and of a
// database 1. A store of an older format is converted when it is met; a newer one is refused and left as it is.
//
// A file is converted in the transaction that opens it: it has one format or the other, whole, whenever the machine stops.
//
// A Redis database is converted by the first call that finds it old, because Redis may come later than the gateway. It may be too large for one
// script, so a step has three parts. It moves the two format keys, xebec:format and xebec:objects:format, from "1" to "1>2"; it converts,
// in scripts that each take a few milliseconds; it moves the keys to "2". Each script, those of older programs too, looks at the format
// keys first: while they are "1>2", no gateway reads or writes anything else. A gateway that is killed in between leaves "1>2", and the
// next one that knows the step runs it again from its beginning; steps leave alone what is converted already. Two gateways may convert
// at once: the first one to reach the end moves the keys, and the scripts of the other one then change nothing. Callers wait for
// the conversion, or leave when their context ends while it goes on. With the keys at "1" or "2" a database is never half of each.
//
// A gateway of an older program beside a newer one is locked out from the moment the conversion begins. It serves on with what it has in memory.
// Its commits are refused, and what it learns from then on is lost when it ends. There is no way back: the older program refuses what the newer
// one has converted, as it refuses a conversion that was not completed. Copy the data before an upgrade that changes the format.
//
// # Limits
//
// Of objects: the constants beside [MaxObjects]. A commit that would go beyond them is refused ([ErrTooMany]); of the history the oldest
// events give way, beyond a number or a size.
//
// A state has at most 4096 fields (64 candidates with 64 numbers), names are bounded, and numbers are finite: an infinite one would
// stay for ever. What is read is held to the same bounds. A writer that was not heard of for a day, or before 256 others, is
// forgotten, and would count twice what it sends again after that.
//
// What a Redis server has answered is as durable as its own settings make it (replication; appendonly, whose usual
// appendfsync, everysec, may answer two seconds before it writes). After a restart without a file it is empty, and numbers start
// at Base again. Where it evicts keys (maxmemory-policy) states go one by one in the same way, and of objects all are refused from the
// first missing key on: noeviction is the setting for such a server. Redis 5 or newer is needed; Redis Cluster is not supported, for
// the format's key lies in one slot only.
//
// Package redistest runs real servers for tests, here and elsewhere.
package state
