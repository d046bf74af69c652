package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// privateTmpBytes bounds a replica's /tmp, which is memory: enough for caches of compiled kernels and lock files.
	privateTmpBytes = 1 << 30 //xebec:limit `/tmp` of an isolated process
	// privateShmBytes bounds its /dev/shm, where libraries share arrays between the processes of one replica.
	privateShmBytes = 4 << 30 //xebec:limit `/dev/shm` of an isolated process
)

// private are the directories that a replica has of its own. What the host has in them is hidden.
var private = []string{"/tmp", "/var/tmp", "/dev/shm", "/run"}

// kept are the parts of /run that programs of a replica may need: the resolver's configuration, the sockets of GPU
// drivers, and the libraries of distributions that keep them there.
var kept = []string{"/run/systemd/resolve", "/run/nvidia-persistenced", "/run/opengl-driver", "/run/current-system"}

// mountView makes the file system that the replica sees, in a mount namespace of its own: the host's, read-only, without
// what is hidden, and with directories of its own. The paths stay the host's.
func (s *sandbox) mountView() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	own := slices.Clone(private)
	if s.Control { // the models of its forks may lie in /tmp, and are not known yet
		own = slices.DeleteFunc(own, func(dir string) bool { return dir == "/tmp" })
	}
	tmp := filepath.Clean(string(s.Tmp))
	if within(tmp, own) == "" && tmp != "/" && filepath.IsAbs(tmp) && isDir(tmp) {
		own = append(own, tmp)
	}
	hidden := existing(toStrings(s.Hidden))
	shown, err := pick(append(existing(kept), s.revealed(hidden)...), append(slices.Clone(own), hidden...), unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	writable, err := pick(toStrings(s.Writable), []string{"/"}, 0)
	if err != nil {
		return err
	}
	shown = append(shown, writable...)
	err = unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID})
	if err != nil {
		return fmt.Errorf("make everything read-only (mount_setattr, since Linux 5.12): %w", err)
	}
	for _, dir := range own {
		if err := mountOwn(dir, within("/tmp", own) != ""); err != nil {
			return err
		}
	}
	if tmp != "." && within(tmp, own) != "" {
		if err := os.MkdirAll(tmp, 0o1777); err != nil {
			return fmt.Errorf("make TMPDIR: %w", err)
		}
		if err := os.Chmod(tmp, 0o777|os.ModeSticky); err != nil {
			return fmt.Errorf("make TMPDIR: %w", err)
		}
	}
	// Outer ones first: what is hidden in a directory that is shown stays hidden, and what is needed of that is shown.
	for depth, left := 1, len(hidden)+len(shown); left > 0; depth++ {
		for _, path := range hidden {
			if strings.Count(path, "/") != depth {
				continue
			}
			left--
			if err := hide(path); err != nil {
				return fmt.Errorf("hide %s: %w", path, err)
			}
		}
		for _, p := range shown {
			if strings.Count(p.path, "/") != depth {
				continue
			}
			left--
			if err := p.show(); err != nil {
				return fmt.Errorf("show %s: %w", p.path, err)
			}
		}
	}
	for _, path := range append(hidden, "/run") {
		if within(path, own) == path || within(path, own) == "" && isDir(path) {
			_ = unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}) // it is empty
		}
	}
	return s.mountProc()
}

// mountProc mounts the /proc of the new pid namespace. That of a zygote shows to each process only those that it may trace: a
// fork does not see another one, which is in another Landlock domain. hidepid=invisible would not do, because members of group 0
// see everything then. subset=pid is not used: numerical libraries read /proc/cpuinfo and /proc/meminfo.
func (s *sandbox) mountProc() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY
	if s.Control {
		if s.noHidepid = unix.Mount("proc", "/proc", "proc", flags, "hidepid=ptraceable"); s.noHidepid == nil {
			return nil
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mount /proc of a new pid namespace: %w", err)
	}
	return nil
}

// mountOwn mounts an empty directory over one of the host's; /var/tmp is the same as a /tmp of its own. A link is left alone: its target is handled by itself.
func mountOwn(dir string, ownTmp bool) error {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil
	}
	options := fmt.Sprintf("size=%d,mode=1777", privateTmpBytes)
	switch {
	case dir == "/dev/shm":
		options = fmt.Sprintf("size=%d,mode=1777", privateShmBytes)
	case dir == "/run":
		options = "size=1m,mode=755"
	case dir == "/var/tmp" && ownTmp:
		if err := unix.Mount("/tmp", dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount a private %s: %w", dir, err)
		}
		return nil
	}
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a private %s: %w", dir, err)
	}
	return nil
}

// picked is a part of the host's file system that has been set aside, to be shown where something covers it.
type picked struct {
	path string
	tree int // a detached mount
	dir  bool
}

// pick sets those paths aside that lie below one of the covers, with an attribute of mounts.
func pick(paths, covers []string, attribute uint64) ([]picked, error) {
	var all []picked
	for _, path := range paths {
		path = filepath.Clean(path)
		if within(path, covers) == "" || slices.ContainsFunc(all, func(p picked) bool { return p.path == path }) {
			continue
		}
		tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("set %s aside (open_tree, since Linux 5.2): %w", path, err)
		}
		attributes := &unix.MountAttr{Attr_set: attribute | unix.MOUNT_ATTR_NOSUID}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attributes); err != nil {
			return nil, fmt.Errorf("set what may be done in %s (mount_setattr, since Linux 5.12): %w", path, err)
		}
		all = append(all, picked{path: path, tree: tree, dir: isDir(path)})
	}
	return all, nil
}

// revealed returns what is to be shown read-only: of what the launch names that which is not below a directory that may be written to, and
// so shown with it. What is hidden in such a directory is shown by itself.
func (s *sandbox) revealed(hidden []string) []string {
	writable := toStrings(s.Writable)
	return slices.DeleteFunc(toStrings(s.Reveal), func(path string) bool {
		path = filepath.Clean(path)
		dir := within(path, writable)
		return dir != "" && !slices.ContainsFunc(hidden, func(h string) bool { return within(h, []string{dir}) != "" && within(path, []string{h}) != "" })
	})
}

// hide covers a file or a directory, unless something covers it already.
func hide(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil
	case info.IsDir():
		return unix.Mount("none", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=1m,mode=755")
	default:
		return unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
	}
}

func (p picked) show() error {
	defer unix.Close(p.tree)
	if _, err := os.Lstat(p.path); err != nil { // not shown with one further out
		if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
			return err
		}
		if p.dir {
			err = os.Mkdir(p.path, 0o755)
		} else {
			err = os.WriteFile(p.path, nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return unix.MoveMount(p.tree, "", unix.AT_FDCWD, p.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// within returns the first of the directories that is path or above it.
func within(path string, dirs []string) string {
	for _, dir := range dirs {
		if path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
			return dir
		}
	}
	return ""
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func existing(paths []string) (found []string) {
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			found = append(found, filepath.Clean(path))
		}
	}
	return found
}
