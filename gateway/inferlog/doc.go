// Package inferlog keeps a sample of what was asked and what was answered: queries with their inputs, outputs, models and latency,
// and the feedback on them, in files that `xebec replay` sends again.
//
// # What it promises
//
// To the gateway, whose query path calls [Stream.Add] from many goroutines: a call copies the record into memory and returns. It
// waits for no disk, allocates nothing in steady state and never fails; when there is no room for a record, because the writer is
// behind or the disk is full, the record is dropped and [Stats] say so. What is logged of a query and of the feedback on it goes
// together: [Stream.Sampled] decides by the query's id alone, the same on every call.
//
// To whoever reads: [Read] goes through files in the order in which they were written, one entry at a time, in bounded memory. It
// takes nothing on trust: what it hands out has the types, shapes and lengths that its schema says. Damaged parts are skipped and
// noted; the rest is read.
//
// To the operator: the files together never take more than Config.MaxBytes, the oldest go first, and only files with this
// package's names are ever removed. One gateway writes to a directory at a time; a second one is told so when it starts.
//
// # How it works
//
// A record is encoded into the current block under a mutex. A full block, or a block that is as old as Config.Flush, goes to one
// goroutine, which compresses it and writes it as one frame. There are Config.Blocks blocks; while all of them wait for the
// writer, records are dropped. When a file cannot be written, its rest is cut off, what was to be written is dropped, the log says
// so once, and a new file is tried every few seconds.
//
// A frame stands alone. It is compressed on its own, and has the schemas of the functions whose records are in it, so that a file
// whose beginning was lost, or that was cut in the middle, can be read from the next frame on.
//
// # The files
//
// A file is called xebec-TIME-NUMBER.xlog, TIME being when it was begun (UTC, microseconds), so that names sort as files were
// written. All integers are little-endian; CRC is CRC-32C.
//
//	file:    "xebeclog" | version u32 = 1 | zero u32 | begun, Unix micros i64 | CRC of these 24 bytes u32 | frames
//	frame:   "XLF1" | kind u8 = 1 | zero 3 bytes | raw length u32 | stored length u32 | CRC of the stored bytes u32 |
//	         CRC of these 20 bytes u32 | stored bytes: one zstd frame
//	raw:     entries, each: length u32 | kind u8 | the rest, in which numbers are varints unless their type is given
//	schema:  kind 1 | stream | sample f64 | function | inputs | outputs; each of the latter two a count, and for each tensor
//	         name | dtype u8 | rank | dimensions, signed
//	query:   kind 2 | stream | id u64 | at, Unix micros i64 | took micros | code u8 | flags u8 (1 default output, 2 outputs
//	         follow) | confidence f64 | context | models: a count, and of each name and version | inputs | outputs
//	feedback: kind 3 | stream | id u64 | at i64 | what u8 (1 label, 2 correct, 3 loss) | loss f64 | label | context
//
// Strings are a length and bytes. A value is its dimensions (a count and that many numbers; none where the schema says all) and its
// data (a length and bytes, as in [api.Value]). A schema comes before the first entry of its stream in the same frame.
//
// # What it never does
//
// It never holds up or fails a query. It does not call fsync: what a killed gateway had flushed is in the files, what a machine
// that lost power had flushed may be lost as far as its file system lets it. A gateway that is killed loses what is younger than
// Config.Flush.
//
// It does not make data anonymous. Inputs, contexts and labels may be personal data, and are kept as they came: the directory is
// created with mode 0700 and files with 0600, nothing is encrypted, and what must not be kept must not be sampled. A file is
// removed when the bound is reached or the operator removes it, not by age.
//
// # Limits
//
// A query that takes more than [MaxRecordBytes] is not logged. Values that JSON lacks (NaN and the infinities) are kept in the
// files, and are null in [Entry.JSON].
//
// Where to read next: log.go for the path of a record, writer.go for that of a block, read.go for the way back.
package inferlog
