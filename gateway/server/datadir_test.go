package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A data directory in which others may write, and a store that others may read, are warnings that say what to do.
func TestADataDirectoryThatIsOpenToOthers(t *testing.T) {
	for _, c := range []struct {
		dir, store os.FileMode // store 0: there is none
		want       map[string]string
	}{
		{0o700, 0, map[string]string{}},
		{0o755, 0o600, map[string]string{}},
		{0o777, 0o600, map[string]string{"": "chmod 700"}},
		{0o770, 0, map[string]string{"": "chmod 700"}},
		{0o700, 0o666, map[string]string{stateFile: "chmod 600"}},
		{0o777, 0o640, map[string]string{"": "chmod 700", stateFile: "chmod 600"}},
	} {
		path := t.TempDir()
		if c.store != 0 {
			if err := os.WriteFile(filepath.Join(path, stateFile), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(path, stateFile), c.store); err != nil { // the umask does not matter
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, c.dir); err != nil {
			t.Fatal(err)
		}
		core, lines := observer.New(zap.WarnLevel)
		dataDir{path: path}.warnOpen(zap.New(core))
		got := map[string]string{}
		for _, line := range lines.All() {
			fields := line.ContextMap()
			name, err := filepath.Rel(path, fields["path"].(string))
			if err != nil {
				t.Fatal(err)
			}
			if name == "." {
				name = ""
			}
			got[name] = fields["do"].(string)[:len("chmod 700")]
			if fields["mode"] == "" {
				t.Errorf("no mode in %v", fields)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v, store %v (-want +got):\n%s", c.dir, c.store, diff)
		}
	}
	core, lines := observer.New(zap.WarnLevel)
	if (dataDir{}).warnOpen(zap.New(core)); lines.Len() != 0 {
		t.Errorf("without a data directory the log has %v", lines.All())
	}
}

// What cannot be written into a data directory is named, and a full disk is called one: the directory was not wrong.
func TestADataDirectoryThatCannotBeWritten(t *testing.T) {
	d := dataDir{path: "/data"}
	for errno, want := range map[syscall.Errno]string{
		syscall.ENOSPC: "the disk is full: free some space", syscall.EDQUOT: "the disk is full: free some space", syscall.EROFS: "name a directory that can be written to",
		syscall.EACCES: fmt.Sprintf("this gateway runs as user %d: start it as the user who owns the directory with all that is in it, or give it both: chown -R %[1]d /data", os.Geteuid()),
	} {
		err := d.notWritten("keep it", &fs.PathError{Op: "write", Path: "/data/gateway.id", Err: errno})
		if !errors.Is(err, errno) || !strings.HasPrefix(err.Error(), "--data-dir /data: keep it: write /data/gateway.id: "+errno.Error()+": "+want) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	path := t.TempDir()
	for file, start := range map[string]func() error{
		lockFile:       func() error { _, err := openDataDir(path); return err },
		ownerFile:      func() error { _, err := dataDir{path: path}.owner(); return err },
		socketsDirs[0]: func() error { _, _, err := dataDir{path: path}.replicaSockets(); return err },
	} {
		if err := os.Symlink(filepath.Join(path, "gone", "file"), filepath.Join(path, file)); err != nil { // nothing can be made there
			t.Fatal(err)
		}
		if err := start(); err == nil || !strings.HasPrefix(err.Error(), "--data-dir "+path+": ") || !strings.Contains(err.Error(), filepath.Join(path, file)+": ") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
