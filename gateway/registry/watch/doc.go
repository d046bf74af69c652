// Package watch finds the model versions that lie in a directory, DIR/NAME/VERSION/xebec.yaml, and says when there are others: the
// source of TensorFlow-Serving that polls a file system (Olston et al. 2017, section 2.1).
//
// A [Watcher] promises to whoever acts on its [Report]:
//
//   - It reports what is complete, and what lasts. Whatever changes must look the same in two scans in a row before it counts: a
//     directory that is being copied, an editor that writes a file in two steps, a directory that is swapped by two renames. A new
//     version's whole tree is compared, by paths, sizes and times; of one that was taken only its xebec.yaml is looked at again. A file
//     named .incomplete in a version's directory keeps it waiting for as long as it lies there. (The first scan takes at once what
//     nobody has touched for ten seconds by the file system's own clock, so that a gateway that starts again does not wait.)
//   - A version never changes. When its xebec.yaml does, in what the model takes, returns or runs, the report keeps what it had and a
//     [Problem] says so; replicas, batching, queue, cache, timeout, cost, warm-up and validation may change, and then do.
//   - No action without data. A directory that cannot be read, is not there, or is empty after it was not (a disk that is not mounted)
//     says nothing about what is wanted: the report is not Complete, and has what was there before. The same goes for one model's
//     directory that cannot be read, for a link that points to nothing, and for a version whose xebec.yaml was broken or lost later.
//   - One bad version disturbs no other. What is wrong with it is a Problem, which says where, what and what to do.
//
// # How
//
// [Watcher.Scan] is one look and starts no goroutine; [Watcher.Run] looks every second. A scan in which nothing has changed costs a stat
// of each model's directory and two of each version's: listings and files are read again only when the times of their inodes have
// changed. Times have a grain: what changed in the two seconds before it was read is read again, until it is older (the "racy" entries
// of git's index). On a network file system a change is seen when the client's attribute cache lets it be seen.
//
// NAME and VERSION may be symbolic links to directories, which can be swapped; a report names the path, not where it leads. Within a
// version's directory no link is followed out of it. Names that begin with a dot or end as those of half-made files do (~, .tmp, .part,
// .partial, .swp) and lost+found are passed over, so a copy can be made beside its place and renamed into it.
//
// Functions may be declared in xebec.yaml beside the model; of several versions that declare the same one, the newest is right. Of two
// models that do, the one that had it first. Traffic rules are no part of a version, and are refused there.
//
// # What it never does
//
// It never decides what is loaded: it reports every version that can be used, and the registry's policies choose. It never writes into
// the directory, never opens a model's own files, never waits on a pipe that somebody calls xebec.yaml, and remembers nothing beyond the
// process: a directory that is empty when the gateway starts is an empty one.
//
// # Limits
//
// [MaxVersions] version directories, of which each is compared by its first [MaxTreeEntries] entries down to [MaxTreeDepth]; what
// lies beyond can be half-copied and is not noticed. A file system that hangs (a server that is gone) hangs the scan, and with it Run:
// whoever stops should not wait for it. A report's specs are shared between reports and are not to be changed.
//
// Where to read next: scan.go for the two upper levels, version.go for what becomes of one version, tree.go for what is compared.
package watch
