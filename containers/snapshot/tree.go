package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of a tree. They keep a directory that was named by mistake, such as a home directory, from being read for hours.
const (
	MaxFiles     = 65536   //xebec:limit files, directories and links of a model's directory
	MaxDepth     = 64      //xebec:limit levels of directories below a model's directory
	MaxNameBytes = 8 << 20 //xebec:limit names of all files of a model's directory together
)

// Kind is what an entry of a tree is.
type Kind string

// The kinds.
const (
	Directory  Kind = "d"
	Regular    Kind = "f"
	Executable Kind = "x"
	Link       Kind = "l"
)

// Entry is one file, directory or link. Its Name has slashes and no leading one.
type Entry struct {
	Name   string `json:"name"`
	Kind   Kind   `json:"kind"`
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of a file's bytes, in hex
	Target string `json:"target,omitempty"` // of a link
}

// Tree is what a directory has. Entries are sorted by name.
type Tree struct {
	Digest  string  `json:"digest"`
	Bytes   int64   `json:"bytes"`
	Entries []Entry `json:"entries"`
}

// Options say what of a directory does not belong to its tree.
type Options struct {
	// Exclude are paths that are left out with all that is below them, relative to the directory or absolute. An absolute one that
	// lies elsewhere excludes nothing.
	Exclude []string
}

// Prefix begins every digest.
const Prefix = "sha256:"

// CheckDigest returns an error unless digest has the form that this package gives them.
func CheckDigest(digest string) error {
	sum, ok := strings.CutPrefix(digest, Prefix)
	if raw, err := hex.DecodeString(sum); !ok || err != nil || len(raw) != sha256.Size || sum != strings.ToLower(sum) {
		return fmt.Errorf("%.100q is no digest: expected %s and %d digits 0-9a-f", digest, Prefix, 2*sha256.Size)
	}
	return nil
}

// seal sorts the entries and computes the digest of them.
func (t *Tree) seal() {
	slices.SortFunc(t.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	sum := sha256.New()
	line := []byte("xebec snapshot 1\n")
	t.Bytes = 0
	for _, e := range t.Entries {
		line = append(line, string(e.Kind)+" "...)
		line = strconv.AppendQuote(line, e.Name)
		switch e.Kind {
		case Regular, Executable:
			line = fmt.Appendf(line, " %d %s", e.Size, e.SHA256)
			t.Bytes += e.Size
		case Link:
			line = strconv.AppendQuote(append(line, ' '), e.Target)
		}
		line = append(line, '\n')
		sum.Write(line)
		line = line[:0]
	}
	if len(t.Entries) == 0 {
		sum.Write(line)
	}
	t.Digest = Prefix + hex.EncodeToString(sum.Sum(nil))
}

// Scan reads a directory and returns its tree, with its digest. dir may be a link to a directory.
func Scan(ctx context.Context, dir string, o Options) (*Tree, error) {
	t, _, err := read(ctx, dir, o, nil)
	return t, err
}

// sink receives a tree while it is read. Its methods are called for a directory before what is in it.
type sink interface {
	directory(name string) error
	// file copies what is in source, and returns a reader of the copy to hash, at its beginning.
	file(name string, source *os.File, size int64, executable bool) (copied *os.File, err error)
	link(name, target string) error
}

// reader reads one directory.
type reader struct {
	ctx    context.Context
	dir    string
	ignore *Ignore
	skip   map[string]bool
	to     sink
	stat   bool // only metadata is read
	tree   Tree
	names  int
	print  hash.Hash // of the metadata
	newest int64     // change time in it, in nanoseconds
	buf    []byte
}

// read returns the tree and a print of the files' metadata. A sink gets everything that is read.
func read(ctx context.Context, dir string, o Options, to sink) (*Tree, stamp, error) {
	r := &reader{ctx: ctx, dir: dir, to: to, buf: make([]byte, 256<<10)}
	return r.run(o)
}

// look returns the tree without the hashes of files, and a print of the files' metadata.
func look(ctx context.Context, dir string, o Options) (*Tree, stamp, error) {
	r := &reader{ctx: ctx, dir: dir, stat: true}
	return r.run(o)
}

// stamp is the metadata of a whole tree. If it is the same later, and was not young, the tree is the same.
type stamp struct {
	sum         string
	newestNanos int64
}

func (r *reader) run(o Options) (*Tree, stamp, error) {
	r.print = sha256.New()
	fd, err := unix.Open(r.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, stamp{}, &os.PathError{Op: "open", Path: r.dir, Err: err}
	}
	root := os.NewFile(uintptr(fd), r.dir)
	defer root.Close()
	if r.ignore, err = readIgnore(root); err != nil {
		return nil, stamp{}, fmt.Errorf("%s: %w", filepath.Join(r.dir, IgnoreFile), err)
	}
	r.skip = map[string]bool{"xebec.yaml": true, IgnoreFile: true}
	for _, p := range o.Exclude {
		if name, below := inside(r.dir, p); below {
			r.skip[name] = true
		}
	}
	if err := r.list(root, "", 0); err != nil {
		return nil, stamp{}, err
	}
	if !r.stat {
		r.tree.seal()
	}
	return &r.tree, stamp{hex.EncodeToString(r.print.Sum(nil)), r.newest}, nil
}

// inside returns the name that a path has below dir.
func inside(dir, p string) (name string, below bool) {
	if filepath.IsAbs(p) {
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return "", false
		}
		p = rel
	}
	p = filepath.Clean(p)
	return filepath.ToSlash(p), filepath.IsLocal(p) && p != "."
}

// leftOut are names of what belongs to tools and not to a model.
var leftOut = []string{
	".git", ".hg", ".svn", "__pycache__", ".venv", "node_modules", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints", ".DS_Store",
}

// list reads what is in an open directory.
func (r *reader) list(dir *os.File, below string, depth int) error {
	if depth > MaxDepth {
		return r.errorf(below, "lies more than %d directories deep: is this the model's directory?", MaxDepth)
	}
	var names []string
	for {
		found, err := dir.Readdirnames(1024)
		if names = append(names, found...); len(r.tree.Entries)+len(names) > 4*MaxFiles {
			return r.tooMany()
		}
		if err == io.EOF || err == nil && len(found) == 0 {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.path(below), err)
		}
	}
	slices.Sort(names)
	for _, base := range names {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		name := path.Join(below, base)
		if slices.Contains(leftOut, base) || r.skip[name] {
			continue
		}
		if err := r.entry(dir, base, name, depth); err != nil {
			return err
		}
	}
	return nil
}

// entry reads one entry of an open directory.
func (r *reader) entry(dir *os.File, base, name string, depth int) error {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstatat(int(dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return r.errorf(name, "%w", err)
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if r.ignore.match(name, isDir) {
		return nil
	}
	if isDir && isEnvironment(dir, base) {
		return nil
	}
	if r.names += len(name); len(r.tree.Entries) >= MaxFiles || r.names > MaxNameBytes {
		return r.tooMany()
	}
	if !isDir { // a directory's own times also change with what is left out
		r.note(name, &st)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return r.directory(dir, base, name, depth)
	case unix.S_IFREG:
		return r.file(dir, base, name)
	case unix.S_IFLNK:
		return r.link(dir, base, name)
	}
	return r.errorf(name, "is a socket, a pipe or a device: a version has files only; remove it, or list it in %s", IgnoreFile)
}

func (r *reader) directory(dir *os.File, base, name string, depth int) error {
	r.tree.Entries = append(r.tree.Entries, Entry{Name: name, Kind: Directory})
	fmt.Fprintf(r.print, "%q d\n", name)
	if r.to != nil {
		if err := r.to.directory(name); err != nil {
			return err
		}
	}
	f, err := openAt(dir, base, unix.O_DIRECTORY)
	if err != nil {
		return r.errorf(name, "%w", err)
	}
	defer f.Close()
	return r.list(f, name, depth+1)
}

func (r *reader) file(dir *os.File, base, name string) error {
	if r.stat {
		var st unix.Stat_t
		if err := again(func() error { return unix.Fstatat(int(dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
			return r.errorf(name, "%w", err)
		}
		r.tree.Entries = append(r.tree.Entries, Entry{Name: name, Kind: kindOf(st.Mode), Size: st.Size})
		r.tree.Bytes += st.Size
		return nil
	}
	f, err := openAt(dir, base, 0)
	if err != nil {
		return r.errorf(name, "%w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return r.errorf(name, "%w", err)
	}
	if !info.Mode().IsRegular() {
		return r.errorf(name, "was replaced while it was read: try again")
	}
	e := Entry{Name: name, Kind: kindOf(uint32(info.Mode().Perm()))}
	from := f
	if r.to != nil {
		if from, err = r.to.file(name, f, info.Size(), e.Kind == Executable); err != nil {
			return r.errorf(name, "%w", err)
		}
		defer from.Close()
	}
	sum := sha256.New()
	if e.Size, err = io.CopyBuffer(sum, cancelled{r.ctx, from}, r.buf); err != nil {
		return r.errorf(name, "%w", err)
	}
	e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	r.tree.Entries = append(r.tree.Entries, e)
	return nil
}

// kindOf is Executable for a file that its owner may execute.
func kindOf(mode uint32) Kind {
	if mode&0o100 != 0 {
		return Executable
	}
	return Regular
}

func (r *reader) link(dir *os.File, base, name string) error {
	buf := make([]byte, unix.PathMax)
	var n int
	err := again(func() (err error) { n, err = unix.Readlinkat(int(dir.Fd()), base, buf); return err })
	if err != nil {
		return r.errorf(name, "%w", err)
	}
	target := string(buf[:n])
	if !linkStays(name, target) {
		return r.errorf(name, "is a link to %.200q, which lies outside of the directory: a version has its own files; copy them into it, or list the link in %s", target, IgnoreFile)
	}
	r.tree.Entries = append(r.tree.Entries, Entry{Name: name, Kind: Link, Target: target})
	if r.to != nil {
		return r.to.link(name, target)
	}
	return nil
}

// linkStays reports whether a link's target lies in the tree, by its text. Other links on its way are links of the tree, too, or refused.
func linkStays(name, target string) bool {
	if target == "" || path.IsAbs(target) {
		return false
	}
	at := strings.Split(path.Dir(name), "/")
	if at[0] == "." {
		at = nil
	}
	// Each step is checked: a/../../x leaves the tree although it comes back. Through a directory link ".." leads to the link's target's
	// parent, which is one level up at least from a directory of the tree, so every ".." after a name is refused.
	named := false
	for step := range strings.SplitSeq(target, "/") {
		switch step {
		case "", ".":
		case "..":
			if named || len(at) == 0 {
				return false
			}
			at = at[:len(at)-1]
		default:
			named = true
		}
	}
	return true
}

// note adds an inode's metadata to the print.
func (r *reader) note(name string, st *unix.Stat_t) {
	fmt.Fprintf(r.print, "%q %d %d %o %d %d %d\n", name, st.Dev, st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	r.newest = max(r.newest, st.Ctim.Nano())
}

func (r *reader) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

func (r *reader) errorf(name, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", r.path(name), err)
}

func (r *reader) tooMany() error {
	return fmt.Errorf("%s: has more than %d files, or their names take more than %d bytes: give the model a directory of its own, or list in %s what does not belong to it", r.dir, MaxFiles, MaxNameBytes, IgnoreFile)
}

// isEnvironment reports whether a directory is a virtual environment of Python.
func isEnvironment(dir *os.File, base string) bool {
	var st unix.Stat_t
	return unix.Fstatat(int(dir.Fd()), base+"/pyvenv.cfg", &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// openAt opens an entry of an open directory, without following a link or waiting for a pipe.
func openAt(dir *os.File, base string, flags int) (*os.File, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Openat(int(dir.Fd()), base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), base), nil
}

// again repeats a call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// cancelled is a reader that ends with a context.
type cancelled struct {
	ctx context.Context
	io.Reader
}

func (c cancelled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(p)
}

// Difference is how the files of two trees differ: names, sorted.
type Difference struct {
	Added, Removed, Changed []string
}

// Diff returns what is different in another tree.
func Diff(from, to *Tree) (d Difference) {
	was := make(map[string]Entry, len(from.Entries))
	for _, e := range from.Entries {
		was[e.Name] = e
	}
	for _, e := range to.Entries {
		old, there := was[e.Name]
		delete(was, e.Name)
		switch {
		case !there:
			d.Added = append(d.Added, e.Name)
		case old != e:
			d.Changed = append(d.Changed, e.Name)
		}
	}
	for name := range was {
		d.Removed = append(d.Removed, name)
	}
	slices.Sort(d.Removed)
	return d
}

// shownNames bounds the names that a Difference shows of each sort.
const shownNames = 8

func (d Difference) String() string {
	var parts []string
	for _, p := range []struct {
		names []string
		what  string
	}{{d.Changed, "changed"}, {d.Added, "added"}, {d.Removed, "removed"}} {
		if len(p.names) == 0 {
			continue
		}
		shown := make([]string, 0, shownNames)
		for _, name := range p.names[:min(len(p.names), shownNames)] {
			if strconv.Quote(name) != `"`+name+`"` {
				name = strconv.Quote(name)
			}
			shown = append(shown, name)
		}
		text := strings.Join(shown, ", ")
		if more := len(p.names) - len(shown); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text+" "+p.what)
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}
