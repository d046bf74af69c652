package venv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Collect removes the environments that none of these models' directories asks for and that no launch has used since before, and what is left of
// builds that ended before. It removes nothing if it cannot be known what a directory asks for. Only the owner of [Config].Dir may call it: those who
// share it may use what these directories do not ask for.
func (r *Runtime) Collect(ctx context.Context, dirs []string, before time.Time) (removed int, err error) {
	if r.cfg.Dir == "" {
		return 0, nil
	}
	entries, err := os.ReadDir(r.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	keep, err := r.wantedKeys(ctx, dirs)
	if err != nil {
		return 0, fmt.Errorf("what models ask for cannot be read, so no environment is removed: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || keep[e.Name()] || ctx.Err() != nil {
			continue
		}
		gone, err := r.remove(e.Name(), before)
		if errs = append(errs, err); gone {
			removed++
		}
	}
	return removed, errors.Join(append(errs, ctx.Err())...)
}

// wantedKeys names the environments that directories ask for. A directory that is not there asks for none: nothing can be started in it.
func (r *Runtime) wantedKeys(ctx context.Context, dirs []string) (map[string]bool, error) {
	keys := map[string]bool{}
	for _, dir := range dirs {
		want, err := readRequirements(dir)
		if errors.Is(err, os.ErrInvalid) || errors.Is(err, fs.ErrNotExist) { // its launches fail
			continue
		}
		if err != nil {
			return nil, err
		}
		if want == nil {
			continue
		}
		about, err := r.interpreter(ctx)
		if err != nil {
			return nil, err
		}
		key, err := r.key(want, about)
		if errors.Is(err, fs.ErrNotExist) { // a wheel that is not there
			continue
		}
		if err != nil {
			return nil, err
		}
		keys[key] = true
	}
	return keys, nil
}

// remove removes an environment, or what is left of a build, unless it was used since before or is being built.
func (r *Runtime) remove(name string, before time.Time) (gone bool, err error) {
	dir := filepath.Join(r.cfg.Dir, name)
	if strings.HasPrefix(name, removing) {
		return false, os.RemoveAll(dir) // an earlier removal did not end
	}
	r.mu.Lock()
	building := r.builds[name] != nil
	r.mu.Unlock()
	info, err := os.Stat(filepath.Join(dir, markName))
	if err != nil { // it is not complete
		info, err = os.Stat(dir)
	}
	if err != nil || building || !info.ModTime().Before(before) {
		return false, nil
	}
	f, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil // another process builds it
	}
	out := filepath.Join(r.cfg.Dir, removing+name) // it is complete or not there, also for those who look meanwhile
	if err := os.Rename(dir, out); err != nil {
		return false, err
	}
	return true, errors.Join(os.Remove(dir+".lock"), os.RemoveAll(out))
}

// removing begins the name of an environment that is being removed.
const removing = ".gone-"

// used notes that a launch uses an environment now.
func used(dir string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, markName), now, now) // a directory that cannot be written to is not collected either
}

// still reports whether the open file is the one at the path.
func still(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}
