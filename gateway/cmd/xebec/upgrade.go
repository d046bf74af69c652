package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/gateway/server"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

func (c *cli) upgradeCommand() *cobra.Command {
	dataDir, binary, share, format := "", "", "", "text"
	trial := defaultCanaryTime
	cmd := &cobra.Command{
		Use:   "upgrade [--binary FILE] [--canary SHARE]",
		Short: "Replace the program of a running gateway, without a failed request",
		Long: `Replace the program of the gateway that runs with --data-dir on this machine, without a failed request.

The gateway starts the new program with its own arguments and environment. The new process gets the listening sockets, loads as many
replicas as the old one has, and takes over; then the old one answers what it has accepted, and ends. Until the new one serves, the
old one does, and nothing can be declared or deleted. If the new one fails, the old one goes on as before.

With --canary the new process first serves that share of the new connections for --canary-time. The old one compares: if the new one
fails more often, or its 99th percentile is worse, it is sent back, the old one serves all, and the command fails with the figures. A
connection stays with the process that got it, so clients that keep their connections open are not in the share.

Both need memory and cores for their replicas at the same time. The command ends when the new process serves, or with the reason why
it does not; the log of the gateway has the rest.`,
		Example: `  xebec upgrade
  xebec upgrade --binary /usr/local/bin/xebec-next --data-dir /var/lib/xebec
  xebec upgrade --canary 5% --canary-time 2m`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if !cmd.Flags().Changed("data-dir") {
				dataDir = c.defaultDataDir()
			}
			if dataDir == "" || dataDir == noDataDir {
				return fmt.Errorf("--data-dir: expected the directory of the gateway to replace; one that keeps nothing cannot be replaced")
			}
			if binary != "" {
				if binary, err = filepath.Abs(binary); err != nil {
					return err
				}
				if err := isProgram(binary); err != nil {
					return fmt.Errorf("--binary %s: %w", binary, err)
				}
			}
			if format != "text" && format != formatJSON {
				return usagef("-o %s: expected text or %s", format, formatJSON)
			}
			canary, err := canaryFlags(share, trial, cmd.Flags().Changed("canary-time"))
			if err != nil {
				return err
			}
			show := c.showUpgrade
			if format == formatJSON {
				show = func(step server.UpgradeProgress) { _ = json.NewEncoder(c.out).Encode(step) }
			}
			pid, err := server.Upgrade(cmd.Context(), dataDir, binary, canary, show)
			if err != nil {
				return err
			}
			show(server.UpgradeProgress{PID: pid, Stage: stageServing})
			return nil
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the gateway (XEBEC_DATA_DIR) (default as for xebec serve)")
	cmd.Flags().StringVar(&binary, "binary", "", "the new program (default the file that the running one was started from, as it is now)")
	cmd.Flags().StringVar(&share, "canary", "", "share of the new connections that the new process serves before it takes over, 0.1% to 50% (default it takes over at once)")
	cmd.Flags().DurationVar(&trial, "canary-time", trial, "how long it serves that share, 100ms to 24h")
	cmd.Flags().StringVarP(&format, "output", "o", format, "what to print: text, json (one object per step)")
	completeFlag(cmd, "output", "text", formatJSON)
	return cmd
}

// stageServing is the last step: the new process serves.
const stageServing = "serving"

// defaultCanaryTime is enough for 500 answers at 20 requests a second in the share.
const defaultCanaryTime = 30 * time.Second

// showUpgrade prints a step for people.
func (c *cli) showUpgrade(step server.UpgradeProgress) {
	switch step.Stage {
	case takeover.StageWaiting:
		fmt.Fprintf(c.out, "process %d has just taken over: waiting while %s\n", step.PID, step.Reason)
	case takeover.StageStarted:
		fmt.Fprintf(c.out, "process %d is started\n", step.PID)
	case takeover.StageLoading:
		if step.Reason != "" {
			fmt.Fprintf(c.out, "process %d waits: %s\n", step.PID, step.Reason)
			return
		}
		fmt.Fprintf(c.out, "process %d loads its replicas\n", step.PID)
	case takeover.StageCanary:
		fmt.Fprintf(c.out, "process %d is tried with %.4g%% of the connections, %.0f of %.4g s: %s, %s, %s\n",
			step.PID, step.Share*100, step.Elapsed, step.Seconds, numerals.Count(step.Passed, "connection"), numerals.Count(step.Answers, "answer"), numerals.Count(step.Errors, "error"))
	case takeover.StagePromoted:
		fmt.Fprintf(c.out, "process %d takes over: %s\n", step.PID, step.Reason)
	case takeover.StageSentBack:
		fmt.Fprintf(c.out, "process %d is sent back, and answers what it has: %s\n", step.PID, step.Reason)
	case stageServing:
		fmt.Fprintf(c.out, "process %d serves; the old one answers what it has accepted, and ends\n", step.PID)
	}
}

// canaryFlags reads --canary and --canary-time; nil: no canary.
func canaryFlags(share string, trial time.Duration, timed bool) (*server.Canary, error) {
	if share == "" {
		if timed {
			return nil, usagef("--canary-time %s: expected --canary SHARE with it", trial)
		}
		return nil, nil
	}
	number, percent := strings.CutSuffix(share, "%")
	x, err := strconv.ParseFloat(number, 64)
	if percent {
		x /= 100
	}
	if err != nil {
		return nil, usagef("--canary %s: expected a share such as 5%% or 0.05", share)
	}
	canary := &server.Canary{Share: x, Seconds: trial.Seconds()}
	if err := canary.Check(); err != nil {
		return nil, usagef("--canary %s --canary-time %s: %w", share, trial, err)
	}
	return canary, nil
}

// startSuccessor starts a program with this one's arguments, to take over from it.
func startSuccessor(binary string, canary *server.Canary) (*os.Process, error) {
	return server.StartProcess(binary, successorArgs(os.Args[1:], canary))
}

// successorArgs are the arguments of a process that takes over. This one may have been a canary itself.
func successorArgs(own []string, canary *server.Canary) []string {
	const takeover = "--takeover"
	var args []string
	for i := 0; i < len(own); i++ {
		switch name, _, joined := strings.Cut(own[i], "="); name {
		case "--canary", "--canary-time":
			if !joined {
				i++ // its value is the next one
			}
		case takeover:
		default:
			args = append(args, own[i])
		}
	}
	args = append(args, takeover)
	if canary != nil {
		args = append(args, fmt.Sprintf("--canary=%g", canary.Share), fmt.Sprintf("--canary-time=%s", canary.Time()))
	}
	return args
}

// isProgram reports what keeps a file from being a program, as far as its name and mode say.
func isProgram(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file: expected the new program")
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a file: expected the new program")
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("it may not be executed (mode %04o): chmod +x", info.Mode().Perm())
	}
	return nil
}
