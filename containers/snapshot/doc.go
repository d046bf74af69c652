// Package snapshot gives the files of a model version a name, their digest, and keeps copies of them by that name. A version is its
// bytes: its replicas run from the copy, so an edited file is another version and never a version that answers in two ways.
//
// # What belongs to a directory
//
// Regular files with their bytes, whether they may be executed, directories, and links that stay inside. Times, owners and other
// permissions do not count. Left out, with everything below: .git, .hg, .svn, __pycache__, node_modules, virtual environments, the
// caches of test tools, xebec.yaml in the directory itself (it is the declaration, which is compared by itself), what [Options].Exclude
// names, and what .xebecignore matches ([ParseIgnore] has its rules). Refused, with the path and what to do: links that lead outside,
// sockets, pipes, devices, and more than [MaxFiles] entries, [MaxDepth] levels or [MaxNameBytes] of names. No link is followed, so a
// file that is swapped for a link while it is read is an error.
//
// # The digest
//
// "sha256:" and the hash of a header and one line for each entry, sorted by name: its kind (d, f, x, l), its quoted name, and for a file
// its size and the hash of its bytes, for a link its quoted target. [Scan] computes it and [Diff] compares two.
//
// # The store
//
// A [Store] keeps trees in DIR/HEX/files, beside DIR/HEX/index.json which lists them. It promises:
//
//   - A copy is complete or not there. It is made under a temporary name, hashed as it is written, flushed and renamed, so it is what its
//     name says even if the source changes meanwhile or the machine loses power.
//   - A copy is read-only: no file or directory in it has a write permission. It shares blocks with the source where the file system can
//     (FICLONE), and takes no space then.
//   - [Store.Dir] looks at each file's metadata, and reads everything again if that has changed. It never returns a damaged copy.
//   - What is above the limit is not copied. Its digest is still known, and [Store.Check] says whether a directory has it.
//
// Digests of directories are remembered by the metadata of their files, so a directory that has not changed is not read again.
// [Store.Take] makes a tree from a tar stream of another host, whose parts [Store.Append] gathers, which is hostile until it has been scanned like any directory.
//
// # What it never does
//
// It decides neither which versions exist nor when a copy is needed: its caller names those that [Store.Collect] must keep.
package snapshot
