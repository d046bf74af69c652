package secret

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// minUnchangedAge is the least age of a file's last change for its time to prove that the file has not changed since:
// two changes within one tick of the file system's clock have the same time.
const minUnchangedAge = 2 * time.Second

// File is a small file that is read again when it changes. It is not safe for concurrent use.
type File struct {
	Path string
	// What names the file in errors, for example "token file". MaxBytes bounds its size.
	What     string
	MaxBytes int64
	// Forbidden are permission bits that the file must not have. ChmodArg is the argument of chmod that removes them.
	Forbidden os.FileMode
	ChmodArg  string
	Now       func() time.Time

	seen os.FileInfo // at the last read; nil: read again
	mode os.FileMode
}

// Mode returns the file's mode at the last Read.
func (f *File) Mode() os.FileMode { return f.mode }

// Again makes Changed report true until the next Read.
func (f *File) Again() { f.seen = nil }

// Changed reports whether the file has changed, or may have.
func (f *File) Changed() bool {
	if f.seen == nil {
		return true
	}
	info, err := os.Stat(f.Path)
	return err != nil || !os.SameFile(info, f.seen) || !info.ModTime().Equal(f.seen.ModTime()) || info.Size() != f.seen.Size() ||
		info.Mode() != f.seen.Mode() || owner(info) != owner(f.seen)
}

// Read returns the file's content. It checks and reads the same open file, even if its name changes meanwhile.
func (f *File) Read() ([]byte, error) {
	f.seen = nil
	// Without O_NONBLOCK, opening a named pipe would block.
	file, err := os.OpenFile(f.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the %s: %w", f.What, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot stat the %s: %w", f.What, err)
	}
	if err := f.check(info); err != nil {
		return nil, err
	}
	f.mode = info.Mode()
	data, err := io.ReadAll(io.LimitReader(file, f.MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the %s: %w", f.What, err)
	case int64(len(data)) > f.MaxBytes:
		return nil, fmt.Errorf("the %s %s has more than %d bytes: is it the right file?", f.What, f.Path, f.MaxBytes)
	}
	if f.Now().Sub(info.ModTime()) > minUnchangedAge {
		f.seen = info
	}
	return data, nil
}

func (f *File) check(info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("the %s %s is not a regular file", f.What, f.Path)
	}
	if uid, own := owner(info), os.Geteuid(); uid != own && uid != 0 {
		return fmt.Errorf("the %s %s belongs to user %d, who could change it: it must belong to user %d, who runs this program, or to root: chown it",
			f.What, f.Path, uid, own)
	}
	if open := info.Mode().Perm() & f.Forbidden; open != 0 {
		return fmt.Errorf("the %s %s has mode %04o, which gives others access: chmod %s %s", f.What, f.Path, info.Mode().Perm(), f.ChmodArg, f.Path)
	}
	return nil
}

// owner returns the user ID of a file's owner.
func owner(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
