package process

import (
	"os"
	"slices"
	"strings"
)

// inherited lists the variables that a worker gets from the gateway's own environment: where programs, homes and
// temporary files are, language and time zone, the virtual environment, which devices may be used and by how many
// threads. It excludes everything that may carry a secret (tokens, proxies with passwords, cloud credentials) and
// everything that changes what code is loaded (PYTHONPATH, LD_PRELOAD), except LD_LIBRARY_PATH, without which many GPU
// set-ups do not start. A name that ends in '*' is a prefix.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_CACHE_HOME",
	"VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH",
	"OMP_*", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
	"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
}

// Inherited picks from an environment the variables that every worker gets unless its launch overrides them: PATH,
// HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, LC_*, TZ, TMPDIR, XDG_CACHE_HOME, VIRTUAL_ENV, CONDA_PREFIX,
// LD_LIBRARY_PATH, OMP_*, the thread counts of MKL, OpenBLAS and NumExpr, and the visible devices of CUDA, NVIDIA and
// ROCm.
func Inherited(environ []string) []string {
	var kept []string
	for _, entry := range environ {
		name, _, ok := strings.Cut(entry, "=")
		if ok && matches(inherited, name) {
			kept = append(kept, entry)
		}
	}
	return kept
}

// matches reports whether name equals a pattern or begins with a pattern that ends in '*'.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, wild := strings.CutSuffix(pattern, "*")
		return name == pattern || wild && strings.HasPrefix(name, prefix)
	})
}

// reaperEnviron returns the reaper's environment: a worker's, plus the settings of the Go runtime, because the reaper
// is this program.
func reaperEnviron(environ []string) []string {
	env := Inherited(environ)
	for _, name := range []string{"GODEBUG", "GORACE", "GOTRACEBACK", "GOCOVERDIR"} {
		if value := lookupEnv(environ, name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// workerEnv returns the whole environment of a worker: the marker, the inherited variables, and the launch's own. The
// launch's entries override inherited ones, and later entries override earlier ones.
func workerEnv(marker string, environ, own []string) ([]string, error) {
	last := make(map[string]int)
	all := append(Inherited(environ), own...)
	for i, entry := range all {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsRune(entry, 0) {
			return nil, launchErrorf(os.ErrInvalid, "environment entry %q: expected NAME=value without zero bytes", name)
		}
		last[name] = i
	}
	env := []string{markerName + "=" + marker}
	for i, entry := range all {
		if name, _, _ := strings.Cut(entry, "="); last[name] == i && name != markerName {
			env = append(env, entry)
		}
	}
	return env, nil
}

// lookupEnv returns the value of a variable in an environment without duplicates.
func lookupEnv(env []string, name string) string {
	for _, entry := range env {
		if n, value, ok := strings.Cut(entry, "="); ok && n == name {
			return value
		}
	}
	return ""
}
