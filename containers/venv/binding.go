package venv

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// addBinding puts the package xebec into the environment, unless the requirements have brought one.
func (b *builder) addBinding() error {
	found, err := filepath.Glob(filepath.Join(b.dir, "venv", "lib", "python3*", "site-packages"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("%s has %d directories site-packages: expected one", b.dir, len(found))
	}
	to := filepath.Join(found[0], "xebec")
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	if err := os.CopyFS(to, b.r.cfg.Binding); err != nil {
		return err
	}
	extension, err := b.extension()
	if err != nil || extension == "" {
		b.report("the binding is without its C extension, which the gateway's Python does not have: it receives descriptors through the socket")
		return nil
	}
	text, err := os.ReadFile(extension)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, filepath.Base(extension)), text, 0o755)
}

// extension is the C extension of the gateway's Python, if its binding is the same as this one; empty: it is not.
func (b *builder) extension() (string, error) {
	if b.about.Binding == "" {
		return "", nil
	}
	same := true
	err := fs.WalkDir(b.r.cfg.Binding, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".py" {
			return err
		}
		ours, err := fs.ReadFile(b.r.cfg.Binding, name)
		if err != nil {
			return err
		}
		theirs, err := os.ReadFile(filepath.Join(b.about.Binding, name))
		same = same && err == nil && bytes.Equal(ours, theirs)
		return nil
	})
	if err != nil || !same {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(b.about.Binding, "_ring*.so"))
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}
