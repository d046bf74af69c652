package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/server"
)

func (c *cli) serveCommand() *cobra.Command {
	cfg := server.Config{Version: buildVersion().Version}
	maxBody, epoch := "64MiB", defaultEpoch
	cmd := &cobra.Command{
		Use:   "serve [--config FILE|DIR]",
		Short: "Run a gateway",
		Long: `Run a gateway: functions on --listen, the admin API and metrics on --admin.

--config names manifests to apply at the start: a file, or a directory with manifests and model directories. It may be given
several times. The gateway runs until it gets SIGTERM or SIGINT; it then answers what it has accepted, and stops its replicas.

Models that name the same --device take turns on it.`,
		Example: `  xebec serve --config models/
  xebec serve --listen 0.0.0.0:1337 --data-dir /var/lib/xebec --config /etc/xebec
  xebec serve --config models/ --device gpu0,gpu1`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.MaxBodyBytes, err = parseBytes(maxBody); err != nil {
				return usagef("--max-body %s: %w", maxBody, err)
			}
			if cfg.Listen, err = hostPort("--listen", cfg.Listen); err != nil {
				return err
			}
			if cfg.Admin, err = hostPort("--admin", c.admin); err != nil {
				return err
			}
			if cfg.DrainTimeout <= 0 {
				return usagef("--drain-timeout %s: expected more than 0", cfg.DrainTimeout)
			}
			if cfg.Epoch, err = checkEpoch(epoch); err != nil {
				return err
			}
			if err = checkDevices(cfg.Devices); err != nil {
				return err
			}
			return server.Run(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&cfg.Manifests, "config", nil, "manifest, or directory of manifests and model directories, to apply at the start")
	flags.StringVar(&cfg.Listen, "listen", defaultServer, "address of the function port")
	flags.StringVar(&cfg.DataDir, "data-dir", "", "directory for the gateway's own files; without one nothing is kept")
	flags.StringVar(&cfg.Python, "python", "", `interpreter that "python" means in commands of models that name no environment (default python3)`)
	flags.StringVar(&cfg.LogLevel, "log-level", "info", "least severe log entries to write: debug, info, warn, error")
	flags.StringVar(&maxBody, "max-body", maxBody, "largest request body, in bytes or with KiB, MiB, GiB")
	flags.DurationVar(&cfg.DrainTimeout, "drain-timeout", 10*time.Second, "how long requests and replicas may take to finish when the gateway stops")
	flags.DurationVar(&epoch, "epoch", epoch, "how often to plan which models answer whom and how; 0 turns planning off")
	flags.StringSliceVar(&cfg.Devices, "device", nil, "name of a device that models may share, several with commas (default the NVIDIA devices of this machine, as gpu0 and so on)")
	return cmd
}

// What --epoch may be, beside 0: with shorter ones planning costs more than it gains, with longer ones a plan is about a load
// that is gone.
const (
	minEpoch     = time.Millisecond
	defaultEpoch = 10 * time.Millisecond
	maxEpoch     = 10 * time.Second
)

// checkEpoch returns --epoch as the configuration has it, where planning is off when negative.
func checkEpoch(epoch time.Duration) (time.Duration, error) {
	switch {
	case epoch == 0:
		return -1, nil
	case epoch < minEpoch || epoch > maxEpoch:
		return 0, usagef("--epoch %s: expected %s to %s, or 0 for no planning", epoch, minEpoch, maxEpoch)
	}
	return epoch, nil
}

func checkDevices(names []string) error {
	for i, name := range names {
		if err := api.CheckName("device", name); err != nil {
			return usagef("--device: %w", err)
		}
		if slices.Contains(names[:i], name) {
			return usagef("--device: %q is there twice", name)
		}
	}
	return nil
}

// parseBytes reads "65536", "64KiB", "64MiB", "1GiB".
func parseBytes(s string) (int64, error) {
	number, unit := s, int64(1)
	for suffix, factor := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = rest, factor
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt32/unit {
		return 0, fmt.Errorf("expected 1 to %d bytes, such as 64MiB", math.MaxInt32)
	}
	return n * unit, nil
}
