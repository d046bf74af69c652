package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	filesName = "files"
	indexName = "index.json"
	knownName = "known" // what directories had when they were last read
	// maxIndexBytes bounds an index that another program has written: MaxFiles entries with MaxNameBytes of names, quoted.
	maxIndexBytes = 64 << 20
	// youngFor is how long the times of a file system may not tell two states of a file apart.
	youngFor = 2 * time.Second
	// attempts is how often a directory is read again because it changed meanwhile.
	attempts = 3 //xebec:limit how often a directory that changes while it is copied is copied again
)

// ErrNoRoom is the error of adding files for whose copy the disk has no room.
var ErrNoRoom = errors.New("there is no room for a copy of the files")

// Config is how a Store keeps trees.
type Config struct {
	// Dir is where; empty: nothing is kept, and only digests are known.
	Dir string
	// LimitBytes is the largest tree that is kept; larger ones have a digest only.
	LimitBytes int64
	// Exclude is left out of every directory: the gateway's own files, for example.
	Exclude []string
}

// Store keeps trees by their digests. Many goroutines may use it, and several processes one directory.
type Store struct {
	cfg Config

	mu      sync.Mutex
	known   map[string]known  // by directory and what is left out
	trees   map[string]*Tree  // those used last, for comparisons
	pins    map[string]string // of a store without a directory
	uploads map[string]*upload
	sound   map[string]string // prints of kept trees that were found sound
}

// known is what a directory had when it was last read.
type known struct {
	Print  string `json:"print"`
	Digest string `json:"digest"`
}

// maxKnown bounds the directories that are remembered. One that is forgotten is read again.
const maxKnown = 65536

// keptTrees bounds the lists of files in memory.
const keptTrees = 64

// Open opens a store, whose directory is made.
func Open(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, known: map[string]known{}, trees: map[string]*Tree{}, sound: map[string]string{}, pins: map[string]string{}, uploads: map[string]*upload{}}
	if cfg.Dir == "" {
		return s, nil
	}
	// Others may enter it: replicas run as users of their own. The directory above it is the gateway's alone.
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chmod(cfg.Dir, 0o755); err != nil { // whatever the umask is
		return nil, err
	}
	return s, nil
}

// Root is the directory in which copies lie; empty: there are none.
func (s *Store) Root() string { return s.cfg.Dir }

// Added is what Add has made of a directory.
type Added struct {
	*Tree
	// Kept says that the store has a copy. Otherwise the tree is above the limit, or the store keeps nothing.
	Kept bool
}

// Add takes the digest of a directory and keeps a copy of it, unless it is above the limit or there already.
func (s *Store) Add(ctx context.Context, dir string, o Options) (Added, error) {
	o.Exclude = append(o.Exclude[:len(o.Exclude):len(o.Exclude)], s.cfg.Exclude...)
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Added{}, err
	}
	for range attempts {
		a, changed, err := s.add(ctx, dir, o)
		if err != nil || !changed {
			return a, err
		}
	}
	return Added{}, fmt.Errorf("%s: its files change while they are read: try again when what writes them has ended, or list in %s what does not belong to the model", dir, IgnoreFile)
}

// add is one attempt. changed: the directory was not the same before and after.
func (s *Store) add(ctx context.Context, dir string, o Options) (_ Added, changed bool, err error) {
	list, before, err := look(ctx, dir, o)
	if err != nil {
		return Added{}, false, err
	}
	keep := s.cfg.Dir != "" && list.Bytes <= s.cfg.LimitBytes
	if digest := s.recall(dir, o, before); digest != "" && keep {
		if t, err := s.Tree(digest); err == nil && s.Has(digest) {
			s.touch(digest)
			return Added{t, true}, false, nil
		}
	}
	var t *Tree
	if keep {
		var copied bool
		if t, copied, err = s.copy(ctx, dir, o); err != nil {
			return Added{}, false, err
		}
		keep = copied
	} else if t, _, err = read(ctx, dir, o, nil); err != nil {
		return Added{}, false, err
	}
	_, after, err := look(ctx, dir, o)
	if err != nil {
		return Added{}, false, err
	}
	if before != after {
		return Added{}, true, nil
	}
	s.learn(dir, o, after, t)
	return Added{t, keep}, false, nil
}

// copy copies a directory into the store. copied is false if it grew above the limit meanwhile.
func (s *Store) copy(ctx context.Context, dir string, o Options) (t *Tree, copied bool, err error) {
	t, err = s.make(func(files string) (*Tree, error) {
		c := &copier{root: files, left: s.cfg.LimitBytes, dirs: []string{files}, buf: make([]byte, 256<<10)}
		t, _, err := read(ctx, dir, o, c)
		if err == nil {
			err = c.finish()
		}
		return t, err
	})
	if errors.Is(err, errTooLarge) {
		t, _, err = read(ctx, dir, o, nil)
		return t, false, err
	}
	return t, err == nil, err
}

// noRoom says that the disk of the copies is full, where err does. Errors of copying name the file that is read, whose disk may be another one.
func (s *Store) noRoom(err error) error {
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, full) {
			return fmt.Errorf("%w in %s: free some space there: %w", ErrNoRoom, s.cfg.Dir, full)
		}
	}
	return err
}

// make makes a tree under a temporary name and gives it its own. fill writes it to a directory, flushed and read-only.
func (s *Store) make(fill func(files string) (*Tree, error)) (t *Tree, err error) {
	tmp, err := os.MkdirTemp(s.cfg.Dir, ".new-")
	if err != nil {
		return nil, s.noRoom(err)
	}
	defer func() {
		if tmp != "" {
			err = errors.Join(s.noRoom(err), removeAll(tmp))
		}
	}()
	files := filepath.Join(tmp, filesName)
	if err := os.Mkdir(files, 0o700); err != nil {
		return nil, err
	}
	if t, err = fill(files); err != nil {
		return nil, err
	}
	index, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	if err := writeSynced(filepath.Join(tmp, indexName), index); err != nil {
		return nil, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, err
	}
	if err := syncDir(tmp); err != nil {
		return nil, err
	}
	at := s.at(t.Digest)
	if err := os.Rename(tmp, at); err != nil {
		if s.Has(t.Digest) { // it is there already; a directory that is not empty is not replaced
			s.touch(t.Digest)
			return t, nil
		}
		// What is there is damaged.
		gone := tmp + ".gone"
		if err := os.Rename(at, gone); err != nil {
			return nil, err
		}
		if err := os.Rename(tmp, at); err != nil { // Collect removes the old one: a replica may run in it
			return nil, err
		}
	}
	tmp = ""
	return t, syncDir(s.cfg.Dir)
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// at is where a tree with this digest lies.
func (s *Store) at(digest string) string {
	return filepath.Join(s.cfg.Dir, strings.TrimPrefix(digest, Prefix))
}

// Has reports whether the store has a sound copy.
func (s *Store) Has(digest string) bool {
	_, err := s.Dir(context.Background(), digest)
	return err == nil
}

// NotKeptError says that a store has no copy of a tree, or a damaged one.
type NotKeptError struct {
	Digest, Why string
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("no copy of %s is kept: %s", e.Digest, e.Why)
}

// Dir returns the directory of a kept tree: the copy is as it was made. The error is a [*NotKeptError] if there is no such copy.
func (s *Store) Dir(ctx context.Context, digest string) (string, error) {
	if s.cfg.Dir == "" {
		return "", &NotKeptError{digest, "the gateway has no data directory"}
	}
	if err := CheckDigest(digest); err != nil {
		return "", &NotKeptError{digest, err.Error()}
	}
	files := filepath.Join(s.at(digest), filesName)
	_, print, err := look(ctx, files, everything)
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return "", &NotKeptError{digest, "it was never made here, or was removed"}
		}
		return "", &NotKeptError{digest, err.Error()}
	}
	s.mu.Lock()
	sound := s.sound[digest] == print.sum
	s.mu.Unlock()
	if !sound {
		t, _, err := read(ctx, files, everything, nil)
		if err != nil {
			return "", &NotKeptError{digest, err.Error()}
		}
		if t.Digest != digest {
			return "", &NotKeptError{digest, "its files in " + files + " were changed"}
		}
		s.mu.Lock()
		s.sound[digest] = print.sum
		s.mu.Unlock()
	}
	s.touch(digest)
	return files, nil
}

// Place returns the directory that Dir would return, if there is one. It reads no file, so the copy may be damaged: it is for what is
// prepared before Dir is asked.
func (s *Store) Place(digest string) (dir string, ok bool) {
	if s.cfg.Dir == "" || CheckDigest(digest) != nil {
		return "", false
	}
	dir = filepath.Join(s.at(digest), filesName)
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}

// everything leaves nothing out but what no tree has.
var everything = Options{}

// Tree returns the list of files of a kept tree.
func (s *Store) Tree(digest string) (*Tree, error) {
	s.mu.Lock()
	t := s.trees[digest]
	s.mu.Unlock()
	if t != nil {
		return t, nil
	}
	if s.cfg.Dir == "" {
		return nil, &NotKeptError{digest, "the gateway has no data directory"}
	}
	if err := CheckDigest(digest); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(s.at(digest), indexName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndexBytes))
	if err != nil {
		return nil, err
	}
	t = new(Tree)
	if err := json.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	said := t.Digest
	if t.seal(); t.Digest != digest || said != digest {
		return nil, fmt.Errorf("%s: does not list the files of %s", f.Name(), digest)
	}
	s.remember(t)
	return t, nil
}

// remember keeps the list of a tree in memory, to say later how another one differs.
func (s *Store) remember(t *Tree) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.trees) >= keptTrees {
		clear(s.trees)
	}
	s.trees[t.Digest] = t
}

// Check returns nil if a directory has this digest, and otherwise how it differs, as far as that is known: a [*DiffersError]. A directory
// that has not changed is not read again.
func (s *Store) Check(ctx context.Context, dir string, o Options, digest string) error {
	t, err := s.look(ctx, dir, o, digest)
	if err != nil || t.Digest == digest {
		return err
	}
	return &DiffersError{Dir: dir, Digest: digest, Now: t.Digest, How: s.Difference(digest, t)}
}

// DiffersError says that a directory does not have the files that a version has.
type DiffersError struct {
	Dir, Digest, Now string
	How              string // what is different; empty: that is not known
}

func (e *DiffersError) Error() string {
	how := e.How
	if how == "" {
		how = "they have the digest " + e.Now
	}
	return fmt.Sprintf("the files in %s are not those of the version (%s): %s", e.Dir, e.Digest, how)
}

// Difference says how a tree differs from the one with a digest; empty: that one's files are not known any more.
func (s *Store) Difference(digest string, now *Tree) string {
	was, err := s.Tree(digest)
	if err != nil {
		return ""
	}
	return Diff(was, now).String()
}

// Look returns the tree of a directory, and keeps no copy.
func (s *Store) Look(ctx context.Context, dir string, o Options) (*Tree, error) {
	return s.look(ctx, dir, o, "")
}

// look is Look. If the digest is the expected one, the tree may have nothing but that.
func (s *Store) look(ctx context.Context, dir string, o Options, expected string) (*Tree, error) {
	o.Exclude = append(o.Exclude[:len(o.Exclude):len(o.Exclude)], s.cfg.Exclude...)
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	list, before, err := look(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	if digest := s.recall(dir, o, before); digest != "" {
		if digest == expected {
			return &Tree{Digest: digest, Bytes: list.Bytes}, nil
		}
		if t, err := s.Tree(digest); err == nil {
			return t, nil
		}
	}
	t, _, err := read(ctx, dir, o, nil)
	if err != nil {
		return nil, err
	}
	if _, after, err := look(ctx, dir, o); err == nil && after == before {
		s.learn(dir, o, after, t)
	}
	return t, nil
}

// key names a directory and what is left out of it.
func key(dir string, o Options) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q", dir, o.Exclude)
	return hex.EncodeToString(sum.Sum(nil))
}

// recall returns the digest that a directory had when it looked like this; empty: it has never.
func (s *Store) recall(dir string, o Options, now stamp) string {
	k := key(dir, o)
	s.mu.Lock()
	was, ok := s.known[k]
	s.mu.Unlock()
	if !ok && s.cfg.Dir != "" {
		data, err := os.ReadFile(filepath.Join(s.cfg.Dir, knownName, k))
		if err != nil || json.Unmarshal(data, &was) != nil || CheckDigest(was.Digest) != nil {
			return ""
		}
	}
	if was.Print != now.sum || now.sum == "" {
		return ""
	}
	return was.Digest
}

// learn notes the digest of a directory, unless it has changed so recently that its times may hide another change.
func (s *Store) learn(dir string, o Options, now stamp, t *Tree) {
	s.remember(t)
	if time.Now().UnixNano()-now.newestNanos < int64(youngFor) {
		return
	}
	k, v := key(dir, o), known{now.sum, t.Digest}
	s.mu.Lock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[k] = v
	s.mu.Unlock()
	if s.cfg.Dir == "" {
		return
	}
	data, err := json.Marshal(v)
	if err != nil {
		return
	}
	// It only saves reading the directory again, so a failure changes nothing.
	at := filepath.Join(s.cfg.Dir, knownName)
	_ = os.MkdirAll(at, 0o700)
	if f, err := os.CreateTemp(at, ".new-"); err == nil {
		_, err = f.Write(data)
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), filepath.Join(at, k))
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}
}

// touch notes that a tree is used now, for Collect.
func (s *Store) touch(digest string) {
	now := time.Now()
	_ = os.Chtimes(s.at(digest), now, now)
}

// Collect removes the trees that were last used before a time and are not among those to keep, with what was left by processes that were
// killed. It returns how many trees it removed.
func (s *Store) Collect(keep map[string]bool, before time.Time) (removed int, err error) {
	if s.cfg.Dir == "" {
		return 0, nil
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range entries {
		digest := Prefix + e.Name()
		tree := CheckDigest(digest) == nil
		if !tree && !strings.HasPrefix(e.Name(), ".new-") || keep[digest] {
			continue
		}
		if info, err := e.Info(); err != nil || !info.ModTime().Before(before) {
			continue
		}
		at := filepath.Join(s.cfg.Dir, e.Name())
		if tree { // it vanishes at once, also for those who look meanwhile
			gone := filepath.Join(s.cfg.Dir, ".new-gone-"+e.Name())
			if err := os.Rename(at, gone); err != nil {
				errs = append(errs, err)
				continue
			}
			at = gone
			removed++
			s.mu.Lock()
			delete(s.sound, digest)
			s.mu.Unlock()
		}
		errs = append(errs, removeAll(at))
	}
	if noted, err := os.ReadDir(filepath.Join(s.cfg.Dir, knownName)); err == nil && len(noted) > maxKnown {
		errs = append(errs, os.RemoveAll(filepath.Join(s.cfg.Dir, knownName)))
	}
	return removed, errors.Join(errs...)
}
