package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// pinsName has a file for each name that a digest is kept under.
const pinsName = "pins"

// Pin keeps a digest under a name, which is that of a file. It does not keep the copy from being collected. A digest of something else than files
// may have a name and @ before it.
func (s *Store) Pin(name, digest string) error {
	if s.cfg.Dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pins[name] = digest
		return nil
	}
	dir := filepath.Join(s.cfg.Dir, pinsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(digest + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// Pinned returns the digest that is kept under a name; empty: there is none that can be read.
func (s *Store) Pinned(name string) string {
	if s.cfg.Dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.pins[name]
	}
	data, err := os.ReadFile(filepath.Join(s.cfg.Dir, pinsName, name))
	digest := strings.TrimSpace(string(data))
	if bare := digest[strings.LastIndexByte(digest, '@')+1:]; err == nil && CheckDigest(bare) == nil {
		return digest
	}
	return ""
}

// Unpin forgets a name.
func (s *Store) Unpin(name string) {
	if s.cfg.Dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pins, name)
		return
	}
	_ = os.Remove(filepath.Join(s.cfg.Dir, pinsName, name))
}
