// Package table serves a CSV file as a lookup table: a query is a key, and its answer is the row with that key. No model
// and no code of a user is involved, yet the gateway sees an ordinary worker, so a table is versioned, validated, rolled
// back and scaled as a model is. `xebec table FILE` is the worker, which ships in the program, and follows the contract
// of the programs in worker/runtimes.
//
// The first line of the file names the columns. [Table.Infer] proposes a signature: the key column is the input, every
// other column an output. The declared signature decides: it may leave out columns, and [Table.Index] reads the cells as
// the types that it names. A cell that is not of its type, a missing column or a repeated key is found when the version
// is loaded, and not by a query.
//
// A table is read whole, within [MaxBytes], and never changes: another file is another version.
package table
