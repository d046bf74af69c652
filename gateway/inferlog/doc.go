// Package inferlog is the inference log: a sample of queries with their inputs, outputs, models and latency, and the
// feedback on them, in files that `xebec replay` sends again.
//
// # What it promises
//
// To the gateway, whose query path calls [Stream.Add] from many goroutines: a call copies the record into memory and
// returns. It does not wait for a disk, allocates nothing in steady state and never fails. If there is no room for a
// record, because the writer is behind or the disk is full, the record is dropped and counted in [Stats]. A query and
// its feedback are logged together or not at all: [Stream.Sampled] decides by the query's id alone.
//
// To the reader: [Read] goes through files in the order in which they were written, one entry at a time, in bounded
// memory. It trusts nothing in a file: every entry that it returns has the types, shapes and lengths of its schema. It
// skips damaged parts and notes them, and reads as far as a file was written when the reading began.
//
// To the operator: the files together never exceed Config.MaxBytes, the oldest are removed first, and only files with
// this package's names are ever removed. Only one gateway writes to a directory at a time; a second one gets an error
// when it starts.
//
// # How it works
//
// The size of a record is computed before it is encoded. [Stream.Add] reserves that size in the current block under a
// mutex, which it holds for a few instructions whatever the record's size, and encodes into the block without the
// mutex. This is the only copy on the query path. A block is sealed when it is full or as old as Config.Flush, and goes
// to the writer's goroutine when all reserved room in it is filled. The writer writes blocks in the order in which they
// were started, each as one frame. It is woken for every fourth block, because wake-ups are costly,
// and at the latest after Config.Flush. There are Config.Blocks blocks. The block that was used last is reused
// first, while it is in the processor's cache. While all blocks wait to be written, records are dropped. If a file
// cannot be written, its incomplete end is truncated, the pending records are dropped, one log line reports it, and the
// writer tries a new file every few seconds.
//
// A block is stored in one of three ways. zstd makes the smallest frames and takes from 0.3 ns a byte (repetitive data)
// to 10 ns (short records of numbers): up to 14 µs for a query of 3 KiB, more than all other work of the gateway for
// it. s2 takes a third of that or less if data repeats, and its result is half as large again. Storing a block
// uncompressed costs only the write: 0.3 ns a byte. Both compressions have a budget of all processors' time: zstd
// 0.25 %, s2 1 % minus what it saves on writing. Up to 20 ms of each can be saved up. zstd is used while its budget lasts,
// then s2, then neither. After a block that compression did not shrink, up to 32 blocks are stored before the next one
// is tried. A log with little traffic is compressed entirely by zstd. A log with much traffic is compressed in part,
// and reaches Config.MaxBytes sooner. RawBytes and WrittenBytes in [Stats] show the ratio.
//
// For example, on two processors zstd has 5 ms of each second and s2 20 ms. 5,000 queries a second of 20 bytes of
// numbers, with their headers 0.5 MB/s, cost zstd 5 ms: it compresses all of them. 60,000 queries of 3 KiB are 180 MB/s.
// If they are zeros, zstd takes 0.55 ns a byte and compresses a twentieth of them. s2 takes 0.2 ns and saves 0.3, which
// costs nothing: it compresses the rest. If they are pictures of digits, zstd takes 4.5 ns a byte and compresses 1 MB
// of each second's data; s2 takes 3.8, of which it saves 0.26, and compresses 5.6 MB: one block in twenty-seven is
// compressed.
//
// A frame is self-contained. It is compressed on its own and includes the schemas of the functions whose records are in
// it. If the beginning of a file is lost, or the file is damaged in the middle, it can be read from the next frame on.
//
// # The files
//
// A file is named xebec-TIME-NUMBER.xlog, where TIME is when it was started (UTC, microseconds), so names sort in the
// order of writing. All integers are little-endian; CRC is CRC-32C.
//
//	file:    "xebeclog" | version u32 = 3 | zero u32 | begun, Unix micros i64 | CRC of these 24 bytes u32 | frames
//	frame:   "XLF1" | kind u8 | zero 3 bytes | raw length u32 | stored length u32 | CRC of the stored bytes u32 |
//	         CRC of these 20 bytes u32 | stored bytes: kind 1, one zstd frame; kind 2, one s2 block; kind 3, raw as it is
//	raw:     entries, each: length u32 | kind u8 | the rest, in which numbers are varints unless their type is given
//	schema:  kind 1 | stream | sample f64 | function | inputs | outputs; each of the latter two a count, and for each tensor
//	         name | dtype u8 | rank | dimensions, signed
//	query:   kind 2 | stream | id u64 | at, Unix micros i64 | took micros | code u8 | flags u8 (1 default output, 2 outputs
//	         follow, 4 the request's id follows) | confidence f64 | the request's id, if it follows | context | models: a count, and of each name and version | inputs | outputs
//	feedback: kind 3 | stream | id u64 | at i64 | what u8 (1 label, 2 correct, 3 loss) | loss f64 | label | context
//
// A string is a length and bytes. A value is its dimensions (a count and that many numbers; none if the schema
// determines them) and its data (a length and bytes, as in [api.Value]). A schema comes before the first entry of its
// stream in the same frame.
//
// Versions 1 and 2, which are also read, had no request ids; version 1 had only frames of kind 1.
//
// # What it never does
//
// It never delays or fails a query. It does not call fsync: what a gateway had flushed when it was killed is in the
// files, but after a power failure flushed data may be lost, depending on the file system. A killed gateway loses
// records younger than Config.Flush.
//
// It does not anonymise data. Inputs, contexts and labels may be personal data and are stored unchanged. The directory
// is created with mode 0700 and files with 0600, and nothing is encrypted: do not sample what must not be stored. A
// file is removed when the limit is reached or when the operator removes it, not by age.
//
// # Limits
//
// A query larger than [MaxRecordBytes] is not logged. Blocks take at most Config.Blocks × Config.BlockBytes of memory,
// 16 MiB by default. The memory is allocated when it is first needed. Values that JSON lacks (NaN and the infinities)
// are preserved in the files, and are null in [Entry.JSON].
//
// Where to read next: log.go for the path of a record, writer.go for that of a block, compress.go for the choice of
// compression, read.go for reading.
package inferlog
