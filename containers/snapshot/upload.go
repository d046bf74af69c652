package snapshot

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Pack writes what a directory has as a tar stream, which [Store.Take] reads, and returns the tree. Times and owners are left out.
func Pack(ctx context.Context, dir string, o Options, w io.Writer) (*Tree, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	p := &packer{w: tar.NewWriter(w)}
	t, _, err := read(ctx, dir, o, p)
	if err == nil {
		err = p.w.Close()
	}
	return t, err
}

// packer is the sink that writes a tar stream.
type packer struct{ w *tar.Writer }

func (p *packer) directory(name string) error {
	return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
}

func (p *packer) link(name, target string) error {
	return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}

func (p *packer) file(name string, source *os.File, size int64, executable bool) (*os.File, error) {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	if executable {
		h.Mode = 0o755
	}
	if err := p.w.WriteHeader(h); err != nil {
		return nil, err
	}
	if n, err := io.CopyN(p.w, source, size); err != nil {
		return nil, fmt.Errorf("became shorter while it was read, after %d bytes: %w", n, err)
	}
	if _, err := source.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	// The reader hashes what is there now; what was sent is hashed where it is received.
	return reopen(source)
}

// reopen returns a second descriptor of an open file, at its beginning, that is closed by itself.
func reopen(f *os.File) (*os.File, error) { return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd())) }

// Take keeps the tree of a tar stream that another host has made with [Pack], and returns it. Everything in the stream is hostile:
// entries that are no files, directories or links, names that are absolute, leave the tree or come twice, and more bytes or entries
// than a directory may have are refused. What was unpacked is then read as any other directory.
func (s *Store) Take(ctx context.Context, stream io.Reader) (*Tree, error) {
	if s.cfg.Dir == "" {
		return nil, errors.New("the gateway has no data directory in which it could keep files")
	}
	if s.cfg.LimitBytes <= 0 {
		return nil, errors.New("the gateway keeps no files: --snapshot-limit is 0")
	}
	tmp, err := os.MkdirTemp(s.cfg.Dir, ".new-upload-")
	if err != nil {
		return nil, s.noRoom(err)
	}
	t, err := s.take(ctx, tmp, stream)
	return t, errors.Join(err, removeAll(tmp))
}

func (s *Store) take(ctx context.Context, tmp string, stream io.Reader) (*Tree, error) {
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	if err := unpack(ctx, root, stream, s.cfg.LimitBytes); err != nil {
		return nil, s.noRoom(err)
	}
	t, copied, err := s.copy(ctx, tmp, Options{})
	if err == nil && !copied {
		err = errTooLarge
	}
	if errors.Is(err, ErrNoRoom) {
		return nil, err
	}
	if err != nil { // the temporary place says nothing to the sender
		return nil, errors.New(strings.ReplaceAll(err.Error(), tmp+"/", ""))
	}
	s.remember(t)
	return t, nil
}

// Unpack writes what a tar stream has below a directory, at most so many bytes of files, and refuses what [Store.Take] does.
func Unpack(ctx context.Context, dir string, stream io.Reader, limit int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(unpack(ctx, root, stream, limit), root.Close())
}

// unpack writes what a tar stream has below root, at most so many bytes of files.
func unpack(ctx context.Context, root *os.Root, stream io.Reader, left int64) error {
	// Headers take room as well: half a kilobyte each, and longer names more.
	in := tar.NewReader(cancelled{ctx, io.LimitReader(stream, left+MaxFiles*2048+2*MaxNameBytes)})
	buf := make([]byte, 256<<10)
	for n := 0; ; n++ {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the archive cannot be read behind %d entries: %w", n, err)
		}
		if n >= MaxFiles {
			return fmt.Errorf("the archive has more than %d entries", MaxFiles)
		}
		name := path.Clean(h.Name)
		if name == "." && h.Typeflag == tar.TypeDir { // the directory itself, as tar -C DIR -c . names it
			continue
		}
		if !filepath.IsLocal(name) || name == "." || strings.ContainsRune(name, 0) || strings.Count(name, "/") > MaxDepth {
			return fmt.Errorf("the archive has an entry %.200q: expected a name below the directory, at most %d levels deep", h.Name, MaxDepth)
		}
		if err := unpackEntry(root, in, h, name, &left, buf); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("the archive has the entry %.200q twice", name)
			}
			return fmt.Errorf("the archive's entry %.200q: %w", name, err)
		}
	}
}

func unpackEntry(root *os.Root, in *tar.Reader, h *tar.Header, name string, left *int64, buf []byte) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return root.Mkdir(name, 0o700)
	case tar.TypeSymlink:
		if !linkStays(name, h.Linkname) {
			return fmt.Errorf("is a link to %.200q, which lies outside of the directory", h.Linkname)
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("has the type %q: expected files, directories and links", h.Typeflag)
	}
	if h.Size > *left {
		return errTooLarge
	}
	mode := os.FileMode(0o600)
	if h.Mode&0o100 != 0 {
		mode = 0o700
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(f, in, buf)
	*left -= n
	return errors.Join(err, f.Close())
}

const (
	// maxUploads bounds what unfinished uploads can hold of the disk.
	maxUploads = 4 //xebec:limit uploads of models' files that are under way
	// uploadIdle is how long an upload may rest.
	uploadIdle = 10 * time.Minute //xebec:limit silence of an upload of a model's files
)

// upload is a tar stream that comes in parts.
type upload struct {
	file *os.File
	size int64
	last time.Time
	busy bool
}

// ErrTooManyUploads says that an upload has to wait for others.
var ErrTooManyUploads = fmt.Errorf("%d uploads are under way: try again when one has ended, or in %s", maxUploads, uploadIdle)

// ErrNoUpload says that an upload is not under way.
var ErrNoUpload = errors.New("there is no such upload: it has ended, or rested too long; begin again")

// Begin begins an upload, and returns its name.
func (s *Store) Begin() (id string, err error) {
	if s.cfg.Dir == "" || s.cfg.LimitBytes <= 0 {
		_, err := s.Take(context.Background(), nil) // it says why
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.uploads {
		if !u.busy && time.Since(u.last) > uploadIdle {
			s.dropUpload(id)
		}
	}
	if len(s.uploads) >= maxUploads {
		return "", ErrTooManyUploads
	}
	f, err := os.CreateTemp(s.cfg.Dir, ".new-part-")
	if err != nil {
		return "", s.noRoom(err)
	}
	id = rand.Text()
	s.uploads[id] = &upload{file: f, last: time.Now()}
	return id, nil
}

// dropUpload ends an upload. Its caller holds s.mu.
func (s *Store) dropUpload(id string) {
	if u := s.uploads[id]; u != nil {
		delete(s.uploads, id)
		_ = u.file.Close()
		_ = os.Remove(u.file.Name()) // Collect removes what is left
	}
}

// hold takes an upload for one call.
func (s *Store) hold(id string) (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	if u == nil {
		return nil, ErrNoUpload
	}
	if u.busy {
		return nil, errors.New("another part of the upload is being taken: send one at a time")
	}
	u.busy = true
	return u, nil
}

// Append takes the next part of an upload, which begins at an offset, and returns where the next one begins.
func (s *Store) Append(id string, offset int64, part []byte) (next int64, err error) {
	u, err := s.hold(id)
	if err != nil {
		return 0, err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.busy, u.last = false, time.Now()
		if errors.Is(err, errTooLarge) || errors.Is(err, ErrNoRoom) {
			s.dropUpload(id)
		}
	}()
	if offset != u.size {
		return 0, fmt.Errorf("the part begins at byte %d: expected byte %d", offset, u.size)
	}
	if u.size+int64(len(part)) > s.cfg.LimitBytes+MaxFiles*2048+2*MaxNameBytes {
		return 0, errTooLarge
	}
	n, err := u.file.WriteAt(part, u.size)
	if err != nil {
		return 0, s.noRoom(err)
	}
	u.size += int64(n)
	return u.size, nil
}

// Finish keeps the tree that was uploaded, and returns it. The upload ends, whatever it was.
func (s *Store) Finish(ctx context.Context, id string) (*Tree, error) {
	u, err := s.hold(id)
	if err != nil {
		return nil, err
	}
	t, err := s.Take(ctx, io.NewSectionReader(u.file, 0, u.size))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropUpload(id)
	return t, err
}
