// Package watch finds model versions in a directory, DIR/NAME/VERSION/xebec.yaml, and reports changes: TensorFlow
// Serving's source that polls a file system (Olston et al. 2017, section 2.1).
//
// A [Watcher] promises the consumer of its [Report]:
//
//   - It reports what is complete and stable. A change must look the same in two consecutive scans before it counts.
//     This covers a directory that is being copied, an editor that writes a file in two steps, and a directory that is
//     swapped by two renames. For a new version the whole tree is compared, by paths, sizes and times; for an accepted
//     one only its xebec.yaml. A file named .incomplete in a version's directory keeps the version waiting as long as
//     it exists. (The first scan immediately accepts what has not changed for ten seconds by the file system's clock,
//     so that a restarting gateway does not wait.)
//   - A version never changes. If its xebec.yaml changes in what the model takes, returns or runs, the report keeps the
//     accepted one and has a [Problem]. Replicas, batching, queue, cache, timeout, cost, warm-up and validation may
//     change, and then the report follows.
//   - No action without data. A directory that cannot be read, does not exist, or has become empty (a disk that is not
//     mounted) says nothing about what is wanted: the report is not Complete and keeps the previous contents. The same
//     holds for a single model's directory that cannot be read, for a dangling link, and for a version whose xebec.yaml
//     was later broken or lost.
//   - A bad version does not affect others. What is wrong with it is a Problem, which says where, what, and what to do.
//
// # How it works
//
// [Watcher.Scan] scans once and starts no goroutine; [Watcher.Run] scans every second. A scan without changes costs one
// stat for each model's directory and two for each version's: listings and files are read again only if their inodes'
// times have changed. Times have a limited resolution: anything that changed in the two seconds before it was read is
// read again until it is older (like the "racy" entries of git's index). On a network file system a change is seen when
// the client's attribute cache expires.
//
// NAME and VERSION may be symbolic links to directories, which can be swapped. A report has the path, not the link's
// target. Inside a version's directory, links out of it are not followed. Names that begin with a dot or end like
// incomplete files (~, .tmp, .part, .partial, .swp) and lost+found are ignored, so a copy can be made in the same
// directory and then renamed.
//
// A xebec.yaml may declare functions beside the model. If several versions declare the same function, the newest one's
// declaration applies. If two models do, the one that had it first keeps it. Traffic rules are not part of a version
// and are rejected.
//
// # What it never does
//
// It never decides what is loaded: it reports every usable version, and the registry's policies choose. It never writes
// to the directory, never opens a model's own files, and never waits on a pipe named xebec.yaml. It remembers nothing
// beyond the process: a directory that is empty when the gateway starts counts as empty.
//
// # Limits
//
// At most [MaxVersions] version directories are examined. Of each, the first [MaxTreeEntries] entries down to depth
// [MaxTreeDepth] are compared; an incomplete copy of anything beyond is not noticed. A file system that hangs (an
// unreachable server) blocks the scan and therefore Run: do not wait for Run when stopping. A report's specs are shared
// between reports and must not be modified.
//
// Where to read next: scan.go for the two upper levels, version.go for a single version, tree.go for what is compared.
package watch
