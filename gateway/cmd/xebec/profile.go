package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
)

type profileOptions struct {
	replica  uint64
	duration time.Duration
	format   string
	to       string
	program  string
}

// profileFormats are the formats of py-spy, with the ends of their files' names.
var profileFormats = map[string]string{"flamegraph": ".svg", "speedscope": ".json", "raw": ".txt"}

func (c *cli) profileCommand() *cobra.Command {
	o := profileOptions{duration: 10 * time.Second, format: "flamegraph"}
	cmd := &cobra.Command{
		Use:   "profile MODEL[@VERSION]",
		Short: "See where a replica of a Python model spends its time",
		Long: `Sample the stacks of a replica of a Python model with py-spy while it serves, and write them as a flame graph, or for speedscope.app. The
replica is not stopped and does not notice. Send it queries meanwhile: idle threads are left out.

It runs on the machine of the replica, as a user who may trace it: root for replicas that are isolated or in containers. py-spy is looked
for in the PATH and in the active virtual environment.`,
		Example: `  xebec profile digits-svm
  xebec profile digits-svm@2 --duration 30s --format speedscope --to profile.json`,
		Args:              exactly("MODEL[@VERSION]"),
		ValidArgsFunction: c.completeVersion,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := api.ParseModelRef(args[0])
			switch {
			case err != nil:
				return usageError{err}
			case profileFormats[o.format] == "":
				return unknownKind("profile --format", o.format, []string{"flamegraph", "speedscope", "raw"})
			case o.duration < time.Second || o.duration > time.Hour:
				return usagef("--duration %s: expected 1s to 1h", o.duration)
			}
			return c.profile(cmd.Context(), id, o)
		},
	}
	cmd.Flags().Uint64Var(&o.replica, "replica", 0, "number of the replica, as in get replicas (default the one that has answered most)")
	cmd.Flags().DurationVar(&o.duration, "duration", o.duration, "how long to sample, 1s to 1h")
	cmd.Flags().StringVar(&o.format, "format", o.format, "flamegraph (SVG), speedscope (JSON), raw (a line for each stack)")
	completeFlag(cmd, "format", "flamegraph", "speedscope", "raw")
	cmd.Flags().StringVar(&o.to, "to", "", "file to write (default MODEL-REPLICA with the end of the format)")
	cmd.Flags().StringVar(&o.program, "py-spy", "", "the program py-spy (default that of the PATH, or of the active virtual environment)")
	return cmd
}

func (c *cli) profile(ctx context.Context, id api.ModelID, o profileOptions) error {
	if err := c.onThisMachine(); err != nil {
		return err
	}
	program, err := c.findPySpy(o.program)
	if err != nil {
		return err
	}
	models, err := c.models(ctx, id.Name)
	if err != nil {
		return err
	}
	r, version, err := busiest(models, id, o.replica)
	if err != nil {
		return err
	}
	pid, err := pythonBelow("/proc", r.PID)
	if err != nil {
		return fmt.Errorf("replica %d of %s@%s: %w", r.ID, id.Name, version, err)
	}
	if o.to == "" {
		o.to = fmt.Sprintf("%s-%d%s", id.Name, r.ID, profileFormats[o.format])
	}
	fmt.Fprintf(c.err, "sampling replica %d of %s@%s (process %d) for %s\n", r.ID, id.Name, version, pid, o.duration)
	cmd := exec.CommandContext(ctx, program, "record", "--nonblocking", "--pid", strconv.Itoa(pid), "--duration", strconv.Itoa(int(o.duration.Seconds())), "--format", o.format, "--output", o.to)
	text, err := cmd.CombinedOutput()
	said := strings.TrimSpace(c.clean(string(text)))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && os.Geteuid() != 0 && (strings.Contains(said, "ermission denied") || strings.Contains(said, "not permitted") || strings.Contains(said, "root")):
		return fmt.Errorf("%s may not trace process %d: run this as root (%s)", program, pid, said)
	case err != nil:
		return fmt.Errorf("%s: %w: %s", program, err, said)
	}
	if _, err := os.Stat(o.to); err != nil {
		return fmt.Errorf("there is nothing to write: the replica did not work in the %s, or its samples could not be read: %s", o.duration, said)
	}
	_, err = fmt.Fprintln(c.out, o.to)
	return err
}

// onThisMachine fails if the gateway, and so its replicas, runs on another machine than this program.
func (c *cli) onThisMachine() error {
	base, err := baseURL("--admin", c.admin)
	if err != nil {
		return err
	}
	u, err := url.Parse(base)
	if err == nil && !loopbackHost(u.Hostname()) {
		return fmt.Errorf("profile reads the memory of a process: run it on the machine of the gateway, with a loopback address for --admin instead of %s", c.admin)
	}
	return err
}

// findPySpy finds the program.
func (c *cli) findPySpy(given string) (string, error) {
	const name = "py-spy"
	if given != "" {
		return exec.LookPath(given)
	}
	if found, err := exec.LookPath(name); err == nil {
		return found, nil
	}
	if env := c.getenv("VIRTUAL_ENV"); env != "" {
		if found, err := exec.LookPath(filepath.Join(env, "bin", name)); err == nil {
			return found, nil
		}
	}
	return "", errors.New("py-spy is not installed: \"pip install py-spy\" installs it, and --py-spy names it where it is not in the PATH")
}

// busiest is the ready replica of a model, or of the named version, that has answered most queries, or the one with the number.
func busiest(models []api.ModelStatus, id api.ModelID, number uint64) (best *api.ReplicaStatus, version string, err error) {
	for i := range models {
		m := &models[i]
		if id.Version != "" && m.Spec.Version != id.Version {
			continue
		}
		for j := range m.Replicas {
			r := &m.Replicas[j]
			if r.State == api.ReplicaReady && r.PID > 0 && (number == 0 && (best == nil || r.Queries > best.Queries) || number == r.ID) {
				best, version = r, m.Spec.Version
			}
		}
	}
	if best == nil {
		what := "no replica"
		if number != 0 {
			what = fmt.Sprintf("no replica %d", number)
		}
		return nil, "", fmt.Errorf("model %s has %s that is ready: %q lists them", strings.TrimSuffix(id.String(), "@"), what, "xebec get replicas "+id.Name)
	}
	return best, version, nil
}

// pythonBelow finds the Python process of a replica: the replica's process, or one that it has started, as an isolated replica and a
// container have.
func pythonBelow(proc string, pid int) (int, error) {
	seen := 0
	for queue := []int{pid}; len(queue) > 0 && seen < maxProfiled; seen++ {
		at := queue[0]
		queue = queue[1:]
		dir := filepath.Join(proc, strconv.Itoa(at))
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it has ended
		}
		program, _, _ := strings.Cut(string(line), "\x00")
		if strings.HasPrefix(filepath.Base(program), "python") {
			return at, nil
		}
		tasks, _ := filepath.Glob(filepath.Join(dir, "task", "*", "children"))
		for _, task := range tasks {
			children, _ := os.ReadFile(task)
			for _, child := range strings.Fields(string(children)) {
				if n, err := strconv.Atoi(child); err == nil {
					queue = append(queue, n)
				}
			}
		}
	}
	return 0, fmt.Errorf("process %d is no Python program, nor is one that it has started", pid)
}

// maxProfiled bounds the processes of a replica that are looked at.
const maxProfiled = 1000
