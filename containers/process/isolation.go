package process

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/xebec-serving/xebec/containers"
)

// Config is what a Runtime has to know of its gateway.
type Config struct {
	// Hidden are files and directories that no isolated replica may see: the gateway's data, tokens, keys and logs.
	Hidden []string
	// Sockets is the directory in which the sockets of replicas appear. What is forked from a zygote sees all of it.
	Sockets string
	// Models is a directory among the hidden ones in which models' files lie. A replica sees its own; what is forked from a zygote sees all.
	Models string
	// MemoryBytes is what all replicas together may take, where cgroups can be made; 0: there is no such bound.
	MemoryBytes int64
	// NoHostNetwork says why no replica may have the host's network; empty: they may.
	NoHostNetwork string
}

const (
	// The users of replicas of a gateway that runs as root. No distribution gives these out: see "Users, Groups, UIDs
	// and GIDs on systemd systems". Each Runtime has a block of its own: see claimUIDs.
	firstUID  = 0x70000000
	uidBlocks = 0x0fff
	blockUIDs = 0x10000
	// maxLooked bounds the files of a model's directory whose permissions are looked at.
	maxLooked = 4096
)

// isolation decides what isolates a launch; nil: nothing. path is its program. What is forked from a zygote shares
// what that has.
func (r *Runtime) isolation(l containers.Launch, path string, env []string, id uint64, zygote bool) *sandbox {
	if l.Isolation.Level == containers.IsolateNone {
		return nil
	}
	s := &sandbox{
		Namespaces: true, Control: zygote, Network: l.Isolation.Network, Strict: l.Isolation.Level == containers.IsolateStrict,
		Tmp: []byte(lookupEnv(env, "TMPDIR")), Hidden: toBytes(r.hidden),
	}
	for _, path := range needed(l, path, env) {
		if path = filepath.Clean(path); !above(path, private) {
			s.Reveal = append(s.Reveal, []byte(path))
		}
	}
	for _, path := range named(l, env) { // anybody can name what is hidden
		if path = filepath.Clean(path); !above(path, private) && within(path, r.hidden) == "" {
			s.Reveal = append(s.Reveal, []byte(path))
		}
	}
	for _, path := range l.Writable {
		s.Writable = append(s.Writable, []byte(filepath.Clean(path)))
	}
	if zygote {
		s.Missing = append(s.Missing, "It is forked from a zygote (preload): it shares namespaces and temporary directories with the other forks of that, and sees the host's /tmp read-only. "+
			"run.isolation: strict starts it by itself.")
		if r.sockets != "" {
			s.Reveal = append(s.Reveal, []byte(r.sockets)) // its forks have theirs in there
		}
		if r.models != "" {
			s.Reveal = append(s.Reveal, []byte(r.models)) // as above
		}
	}
	if r.root0 {
		r.dropRoot(s, l.Dir, path, lookupEnv(env, "XEBEC_SOCKET"), id)
	}
	return s
}

// needed lists what a launch cannot do without, wherever it lies: its directory, its socket, its program with what belongs
// to that.
func needed(l containers.Launch, program string, env []string) []string {
	all := []string{l.Dir, program}
	if socket := lookupEnv(env, "XEBEC_SOCKET"); filepath.IsAbs(socket) {
		all = append(all, socket)
	}
	if target, err := filepath.EvalSymlinks(program); err == nil {
		all = append(all, target, filepath.Dir(filepath.Dir(target))) // an interpreter's libraries lie beside bin
	}
	if venv := filepath.Dir(filepath.Dir(program)); isFile(filepath.Join(venv, "pyvenv.cfg")) {
		all = append(all, venv)
	}
	return all
}

// named lists the absolute paths in the arguments and the environment of a launch. A replica sees these even where they
// lie in a directory that it has of its own.
func named(l containers.Launch, env []string) (all []string) {
	words := l.Command[1:]
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if name != "TMPDIR" {
			words = append(words[:len(words):len(words)], filepath.SplitList(value)...)
		}
	}
	for _, word := range words {
		if filepath.IsAbs(word) {
			all = append(all, word)
		}
	}
	return all
}

// dropRoot chooses the user of a root gateway's replica: one of its own, else root without capabilities, else root.
func (r *Runtime) dropRoot(s *sandbox, dir, path, socket string, id uint64) {
	switch {
	case len(s.Writable) > 0:
		s.Missing = append(s.Missing, "It runs as root: the directories that it writes to are root's.")
	case s.Control:
		dir = "" // its forks have directories of their own
		s.Missing = append(s.Missing, "It runs as root: forks of a zygote have its user.")
	default:
		uid := r.users() + int(id%(blockUIDs-1)) + 1
		why := blocked(uint32(uid), dir, path, socket, r.hidden)
		if why == "" {
			s.UID = uid
			return
		}
		s.Missing = append(s.Missing, "It has no user of its own and runs as root: "+why+".")
	}
	if why := blocked(0, dir, path, socket, r.hidden); why != "" {
		s.Privileged, s.Namespaces = true, false
		s.Missing = append(s.Missing, "It has no namespaces and keeps root's capabilities: "+why+".")
	}
}

// blocked says what keeps a user without capabilities from reading a model's files or its program, or from connecting to its socket;
// empty: nothing.
func blocked(uid uint32, dir, program, socket string, hidden []string) string {
	targets := []string{program}
	if dir != "" {
		targets = append(targets, dir)
	}
	if target, err := filepath.EvalSymlinks(program); err == nil {
		targets = append(targets, target)
	}
	for _, target := range targets {
		switch at, err := barred(uid, target, hidden); {
		case err != nil:
			return err.Error()
		case at != "":
			return fmt.Sprintf("%s may not be entered by other users (chmod o+x)", at)
		}
	}
	if filepath.IsAbs(socket) {
		switch at, err := barred(uid, socket, append(slices.Clone(hidden), private...)); {
		case err != nil:
			return err.Error()
		case at != "":
			return fmt.Sprintf("its socket lies in %s, which may not be entered by other users (chmod o+x, or --data-dir elsewhere)", at)
		}
	}
	if info, err := os.Stat(program); err == nil && !allows(info, uid, 0o5) {
		return fmt.Sprintf("%s may not be read and executed by other users (chmod o+rx)", program)
	}
	for _, device := range gpus() {
		if info, err := os.Stat(device); err == nil && !allows(info, uid, 0o6) {
			return fmt.Sprintf("%s may not be used by other users", device)
		}
	}
	if dir == "" {
		return ""
	}
	found, looked := "", 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if looked++; looked > maxLooked {
			return fs.SkipAll
		}
		if err != nil {
			return nil
		}
		if within(path, hidden) != "" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return nil
		}
		need := fs.FileMode(0o4)
		if d.IsDir() {
			need = 0o5
		}
		if !allows(info, uid, need) {
			found = fmt.Sprintf("%s may not be read by other users (chmod -R o+rX %s)", path, dir)
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// barred returns the directory on the way to a path, or the path itself, that a user without capabilities may not enter; empty: none.
// Below the directories made a replica sees others, which were made for it and may be entered.
func barred(uid uint32, path string, made []string) (at string, err error) {
	path = filepath.Clean(path)
	for at = path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return "", err
		}
		if info.IsDir() && (at == path || within(at, made) == "") && !allows(info, uid, 0o1) {
			return at, nil
		}
		if at == "/" || at == "." {
			return "", nil
		}
	}
}

// allows reports whether a user without groups and capabilities has the permissions, which are three bits.
func allows(info fs.FileInfo, uid uint32, need fs.FileMode) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	mode := info.Mode().Perm()
	switch {
	case st.Uid == uid:
		mode >>= 6
	case st.Gid == uid:
		mode >>= 3
	}
	return mode&need == need
}

// gpus are the nodes by which GPUs are used.
func gpus() (all []string) {
	for _, pattern := range []string{"/dev/nvidia*", "/dev/dri/render*", "/dev/kfd"} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if !isDir(path) {
				all = append(all, path)
			}
		}
	}
	return all
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
