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
// noted; the rest is read, as far as it was written when the reading began.
//
// To the operator: the files together never take more than Config.MaxBytes, the oldest go first, and only files with this
// package's names are ever removed. One gateway writes to a directory at a time; a second one is told so when it starts.
//
// # How it works
//
// The size of a record is known before it is encoded. [Stream.Add] reserves so much of the current block under a mutex, which is held
// for some instructions whatever the record's size, and encodes into it without: the one copy that is made on the query path. A full
// block, or a block that is as old as Config.Flush, is sealed, and goes to one goroutine once all that was reserved in it is filled. That
// goroutine writes blocks in the order in which they were begun, each as one frame. It is woken for every fourth block (a wake-up is a
// system call on the query path), and at the latest when Config.Flush has passed. There are Config.Blocks blocks, and the one that was
// used last is taken first, while it is in the processor's cache; while all of them wait, records are dropped. When a file cannot be
// written, its rest is cut off, what was to be written is dropped, the log says so once, and a new file is tried every few seconds.
//
// A block is stored in one of three ways. zstd makes the smallest, and takes from 0.3 ns a byte (what repeats) to 10 (short records
// of numbers): up to 14 µs for a query of 3 KiB, more than all that the gateway does for it. s2 takes a third of that or less where data
// repeats, and leaves half as much again. Stored as it is, a block costs the write: 0.3 ns a byte. So both compressions have an allowance
// of all processors' time: zstd half a hundredth, s2 two hundredths less what it saves of writing; 20 ms of each can be saved up. zstd is
// used while its allowance lasts, then s2, then neither; and after a block that got no smaller, up to 32 are stored before the
// next one is tried. A log of little traffic is compressed as a whole by zstd; one of much traffic in part, and reaches Config.MaxBytes
// sooner. Of [Stats], RawBytes and WrittenBytes say how far it was compressed.
//
// Worked out for two processors, on which zstd has 10 ms of each second and s2 40: 10,000 queries of 20 bytes of numbers a second, with
// their heads 1 MB/s, take zstd 10 ms: all are compressed by it. 60,000 queries of 3 KiB are 180 MB/s. Where they are zeros, zstd takes
// 0.55 ns a byte, and a tenth of them; s2 takes 0.2 and saves 0.3, which is free: the rest. Where they are pictures of digits, zstd takes
// 4.5 ns and gets 2 MB; s2 takes 3.8, of which it saves 0.26, and gets 11 MB: one block in fourteen is compressed.
//
// A frame stands alone. It is compressed on its own, and has the schemas of the functions whose records are in it, so that a file
// whose beginning was lost, or that was cut in the middle, can be read from the next frame on.
//
// # The files
//
// A file is called xebec-TIME-NUMBER.xlog, TIME being when it was begun (UTC, microseconds), so that names sort as files were
// written. All integers are little-endian; CRC is CRC-32C.
//
//	file:    "xebeclog" | version u32 = 2 | zero u32 | begun, Unix micros i64 | CRC of these 24 bytes u32 | frames
//	frame:   "XLF1" | kind u8 | zero 3 bytes | raw length u32 | stored length u32 | CRC of the stored bytes u32 |
//	         CRC of these 20 bytes u32 | stored bytes: kind 1, one zstd frame; kind 2, one s2 block; kind 3, raw as it is
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
// Version 1, which is read too, had frames of kind 1 only.
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
// A query that takes more than [MaxRecordBytes] is not logged. Blocks take Config.Blocks × Config.BlockBytes of memory at most, 8 MiB, and
// 32 MiB where queries are as large as MaxRecordBytes; they have it from when it is needed first. Values that JSON lacks (NaN and the infinities) are kept in the
// files, and are null in [Entry.JSON].
//
// Where to read next: log.go for the path of a record, writer.go for that of a block, compress.go for what is compressed, read.go for
// the way back.
package inferlog
