package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

func launchErrorf(cause error, format string, args ...any) *containers.LaunchError {
	return &containers.LaunchError{Message: fmt.Sprintf(format, args...), Err: cause}
}

// resolve finds the program of a command. An absolute path is taken as it is; a relative path with a slash means a file
// below dir; a bare name means an executable file in dir, else the first one in path. It uses no shell, ignores the
// gateway's current directory, and skips relative entries of path.
func resolve(dir, name, path string) (string, error) {
	found, err := find(dir, name, path)
	if words := strings.Fields(name); errors.Is(err, os.ErrNotExist) && len(words) > 1 { // a name may have blanks
		for i := range words {
			words[i] = strconv.Quote(words[i])
		}
		return "", launchErrorf(os.ErrNotExist, "%v; %q is one element: expected an element for each argument, [%s]", err, name, strings.Join(words, ", "))
	}
	return found, err
}

func find(dir, name, path string) (string, error) {
	if err := checkDir(dir); err != nil {
		return "", err
	}
	if filepath.IsAbs(name) {
		return name, checkProgram(name)
	}
	here := filepath.Join(dir, name)
	err := checkProgram(here)
	if err == nil || strings.Contains(name, "/") {
		return here, err
	}
	for _, entry := range filepath.SplitList(path) {
		if !filepath.IsAbs(entry) {
			continue
		}
		if found := filepath.Join(entry, name); checkProgram(found) == nil {
			return found, nil
		}
	}
	if errors.Is(err, os.ErrPermission) { // the file exists beside the model: say so rather than "not found"
		return "", err
	}
	return "", launchErrorf(os.ErrNotExist, "command %q not found: it is neither an executable file in %s nor in one of the directories of PATH (%s)", name, dir, path)
}

// environmentHint says what a model's field "python" means, where a program is missing that may come from there.
func environmentHint(path string) string {
	env, ok := strings.CutSuffix(path, "/bin/python")
	if !ok {
		return ""
	}
	return `: a model's field "python" names the directory of a virtual environment: expected one at ` + env + ` (a relative path is relative to the model's directory)`
}

func checkDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return launchErrorf(os.ErrInvalid, "working directory %q: expected an absolute path", dir)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return launchErrorf(err, "working directory %s does not exist: was the model's directory moved or deleted?", dir)
	case err != nil:
		return launchErrorf(err, "working directory %s cannot be used: %v", dir, err)
	case !info.IsDir():
		return launchErrorf(os.ErrInvalid, "working directory %s is not a directory", dir)
	}
	return nil
}

func checkProgram(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return launchErrorf(os.ErrNotExist, "command %s does not exist%s", path, environmentHint(path))
	case err != nil:
		return launchErrorf(err, "command %s cannot be used: %v", path, err)
	case info.IsDir():
		return launchErrorf(os.ErrNotExist, "command %s is a directory: expected a program", path)
	case !info.Mode().IsRegular():
		return launchErrorf(os.ErrInvalid, "command %s is not a regular file", path)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return launchErrorf(os.ErrPermission, "command %s is not executable: chmod +x it, or name its interpreter first in the command", path)
	}
	return nil
}

// launchFailure converts the reaper's answer to a launch that failed.
func launchFailure(path string, p reply) error {
	switch {
	case p.Step == stepLayer:
		return launchErrorf(os.ErrPermission, "run.isolation is strict, and this machine does not give every layer: %s", p.Text)
	case p.Step == stepLost:
		return interruptedError{fmt.Sprintf("start %s: %s", path, p.Text)}
	case p.Text != "":
		return fmt.Errorf("start %s: %s", path, p.Text)
	}
	return execError(path, p.Step, syscall.Errno(p.Errno))
}

// execError converts a failed exec into an error message. The program existed and was executable just before.
func execError(path string, step string, errno syscall.Errno) error {
	if step != "exec" {
		return fmt.Errorf("set the %s of %s: %w", step, path, errno)
	}
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return launchErrorf(errno, "command %s cannot be run: the interpreter that its first line (#!) names, or its dynamic loader, does not exist", path)
	case syscall.ENOEXEC:
		return launchErrorf(errno, "command %s cannot be run: it is neither a program for this machine nor a script that begins with #!", path)
	case syscall.EACCES, syscall.EPERM:
		return launchErrorf(errno, "command %s cannot be run: %v (the file, its interpreter or its directory forbids it, or the file system is mounted noexec)", path, errno)
	case syscall.E2BIG:
		return launchErrorf(errno, "command %s cannot be run: its arguments and environment are too large", path)
	default:
		return fmt.Errorf("command %s cannot be run: %w", path, errno)
	}
}
