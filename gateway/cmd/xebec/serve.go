package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers/process"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry/fetch"
	"github.com/xebec-serving/xebec/gateway/server"
)

func (c *cli) serveCommand() *cobra.Command {
	cfg := server.Config{Version: buildVersion().Version}
	nodeMemory, logLevel, logFormat := "", "info", logConsole
	maxBody, epoch, logBytes := "64MiB", defaultEpoch, "1GiB"
	minRate, bodyMemory, cache, snapshotLimit, feedbackMemory := "16KiB", "", "", "2GiB", "64MiB"
	canary, canaryTime := "", defaultCanaryTime
	grpcListen := server.DefaultGRPC
	cmd := &cobra.Command{
		Use:   "serve [--config FILE|DIR]",
		Short: "Run a gateway",
		Long: `Run a gateway: functions on --listen, gRPC on --grpc-listen, the admin API and metrics on --admin.

--config names manifests to apply at the start: a file, or a directory with manifests and model directories. --models names a
directory to watch: NAME/VERSION below it is a version of a model, and the newest version of each model serves unless traffic rules
say otherwise.

The gateway runs until it gets SIGTERM or SIGINT. It then answers the queries that it has accepted, and stops its replicas. With
--lame-duck it goes on serving for a while after SIGTERM, and /readyz answers 503. A further signal ends that, the next one cuts off
what is not answered. SIGHUP applies --config again; what is invalid is logged and changes nothing.

Models that name the same --device take turns on it.

Declarations, their history, and what selection policies learn from feedback are kept in --store, or else in the file state.db of
--data-dir, and survive a restart. If a Redis server needs a password, give its address in XEBEC_STORE: other users can read the
command line. --data-dir none keeps nothing.

Beyond loopback, the admin port needs TLS and tokens: --admin-token-file, --admin-cert and --admin-key.`,
		Example: `  xebec serve --config models/
  xebec serve --listen 0.0.0.0:1337 --data-dir /var/lib/xebec --config /etc/xebec
  xebec serve --config models/ --device gpu0,gpu1
  xebec serve --config models/ --store redis://127.0.0.1:6379 --cache 1GiB
  xebec serve --models /srv/models --inference-log /var/log/xebec`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.MaxBodyBytes, err = parseBytes(maxBody, 1, math.MaxInt32); err != nil {
				return usagef("--max-body %s: %w", maxBody, err)
			}
			if cfg.Canary, err = canaryFlags(canary, canaryTime, cmd.Flags().Changed("canary-time")); err != nil {
				return err
			}
			if cfg.Canary != nil && !cfg.Takeover {
				return usagef("--canary %s: expected --takeover with it", canary)
			}
			if err = edgeFlags(&cfg, minRate, bodyMemory); err != nil {
				return err
			}
			if cfg.Listen, err = hostPort("--listen", cfg.Listen); err != nil {
				return err
			}
			if cfg.Admin, err = hostPort("--admin", c.admin); err != nil {
				return err
			}
			if cfg.GRPC, err = grpcFlag(grpcListen, cmd.Flags().Changed("grpc-listen")); err != nil {
				return err
			}
			if cfg.Connections < 1 || cfg.Connections > maxConnections {
				return usagef("--max-connections %d: expected 1 to %d", cfg.Connections, maxConnections)
			}
			if cfg.DrainTimeout <= 0 {
				return usagef("--drain-timeout %s: expected more than 0", cfg.DrainTimeout)
			}
			if cfg.LameDuck < 0 || cfg.LameDuck > maxLameDuck {
				return usagef("--lame-duck %s: expected 0 to %s", cfg.LameDuck, maxLameDuck)
			}
			if cfg.Epoch, err = checkEpoch(epoch); err != nil {
				return err
			}
			if err = api.CheckBusyPoll(cfg.BusyPoll); err != nil {
				return usagef("--busy-poll %w", err)
			}
			if err = checkDevices(cfg.Devices); err != nil {
				return err
			}
			if _, err = browser.ParseHosts(cfg.AllowedHosts); err != nil {
				return usagef("--allowed-hosts: %w", err)
			}
			if cfg.CacheBytes, err = memoryFlag("--cache", cache, maxCacheBytes); err != nil {
				return err
			}
			if cfg.SnapshotLimitBytes, err = memoryFlag("--snapshot-limit", snapshotLimit, maxSnapshotLimit); err != nil {
				return err
			}
			if cfg.FeedbackWindow < 0 || cfg.FeedbackWindow > maxFeedbackWindow {
				return usagef("--feedback-window %d: expected 1 to %d queries, or 0 for no feedback by query id", cfg.FeedbackWindow, maxFeedbackWindow)
			}
			if cfg.FeedbackWindow == 0 {
				cfg.FeedbackWindow = -1
			}
			if cfg.FeedbackBytes, err = memoryFlag("--feedback-memory", feedbackMemory, maxFeedbackMemory); err != nil {
				return err
			}
			if cfg.Contexts < 1 || cfg.Contexts > maxContexts {
				return usagef("--contexts %d: expected 1 to %d", cfg.Contexts, maxContexts)
			}
			if cfg.NodeCPU < 0 || cfg.NodeCPU > api.MaxCPU {
				return usagef("--node-cpu %g: expected 0 (what is found) to %d cores", cfg.NodeCPU, api.MaxCPU)
			}
			if nodeMemory != "" {
				if cfg.NodeMemoryBytes, err = parseBytes(nodeMemory, 1<<20, api.MaxMemoryBytes); err != nil {
					return usagef("--node-memory %s: %w", nodeMemory, err)
				}
			}
			if err := process.Conceal(); err != nil {
				return err
			}
			if flags := cmd.Flags(); flags.Changed("token-file") || flags.Changed("ca") || flags.Changed("client-cert") || flags.Changed("client-key") {
				return usagef("--token-file, --ca, --client-cert and --client-key are for commands that call a gateway: serve takes --admin-token-file, --admin-cert and --admin-key")
			}
			if !cmd.Flags().Changed("store") {
				cfg.Store = c.getenv("XEBEC_STORE")
			}
			if cfg.InferenceLogBytes, err = parseBytes(logBytes, minLogBytes, maxLogBytes); err != nil {
				return usagef("--inference-log-max %s: %w", logBytes, err)
			}
			if cfg.ModelsEvery < minModelsEvery || cfg.ModelsEvery > maxModelsEvery {
				return usagef("--models-interval %s: expected %s to %s", cfg.ModelsEvery, minModelsEvery, maxModelsEvery)
			}
			if cfg.StoresEvery < minModelsEvery || cfg.StoresEvery > maxModelsEvery {
				return usagef("--models-url-interval %s: expected %s to %s", cfg.StoresEvery, minModelsEvery, maxModelsEvery)
			}
			if !cmd.Flags().Changed("data-dir") {
				cfg.DataDir = c.defaultDataDir()
			}
			if cfg.DataDir == noDataDir {
				cfg.DataDir = ""
			}
			log, closeLog, err := newLogger(logLevel, logFormat, c.err)
			if err != nil {
				return err
			}
			defer closeLog()
			cfg.Logger, cfg.ReleaseMemory = log, true
			cfg.Connections = fitConnections(cfg.Connections, cmd.Flags().Changed("max-connections"), log)
			if runtime.GOMAXPROCS(0) < 2 {
				runtime.GOMAXPROCS(2) // with one P the poller and its work take turns: 5–15 ms at the 99th percentile
			}
			cfg.StartSuccessor = startSuccessor
			if cfg.Program, err = os.Executable(); err != nil {
				return err
			}
			http.SilenceHertz()
			return runGateway(cmd.Context(), cfg, c.signals)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&cfg.Manifests, "config", nil, "manifest, or directory of manifests and model directories at any depth, to apply at each start; may be repeated")
	flags.BoolVar(&cfg.Takeover, "takeover", false, "take over from the gateway that runs with --data-dir, which then ends, without a failed request; xebec upgrade does it")
	flags.StringVar(&canary, "canary", "", "with --takeover: share of the new connections to serve before this process takes over, 0.1% to 50%; it ends if it is worse than the old one (default it takes over at once)")
	flags.DurationVar(&canaryTime, "canary-time", canaryTime, "how long to serve the share of --canary, 100ms to 24h")
	flags.StringVar(&cfg.Listen, "listen", defaultServer, "address of the function port; it has no authentication but --client-ca")
	flags.StringVar(&grpcListen, "grpc-listen", grpcListen, `address of the gRPC port, with the certificate of the function port; "off" opens none, and so does the default where another program listens`)
	flags.StringVar(&cfg.DataDir, "data-dir", "", `directory for the gateway's own files, made with mode 0700; one for each gateway; "none" keeps nothing (XEBEC_DATA_DIR) (default xebec in $XDG_STATE_HOME or ~/.local/state)`)
	flags.StringVar(&snapshotLimit, "snapshot-limit", snapshotLimit, "largest directory of a version of which a copy is kept in --data-dir, in bytes or with KiB, MiB, GiB; 0 keeps none: replicas run from the directory, and do not start when its files have changed")
	flags.BoolVar(&cfg.LiveModels, "live-models", false, "run replicas from their models' directories as they are, without digests; for xebec dev")
	_ = flags.MarkHidden("live-models")
	flags.StringArrayVar(&cfg.Models, "models", nil, "directory to watch for models, in NAME/VERSION; may be repeated")
	flags.StringArrayVar(&cfg.Stores, "models-url", nil, "URL of an index document of models, http or https; may be repeated")
	flags.DurationVar(&cfg.StoresEvery, "models-url-interval", fetch.DefaultEvery, "how often to look at these documents, 10ms to 1h")
	flags.DurationVar(&cfg.ModelsEvery, "models-interval", time.Second, "how often to look at watched directories, 10ms to 1h")
	flags.StringVar(&cfg.InferenceLog, "inference-log", "", "directory of the inference log, for functions that declare log (default none)")
	flags.StringVar(&logBytes, "inference-log-max", logBytes, "bound of all files of the inference log, in bytes or with KiB, MiB, GiB; at least 8MiB")
	flags.StringVar(&cfg.AdminTokenFile, "admin-token-file", "", "file with the tokens that the admin port accepts, one per line, TOKEN or NAME:TOKEN; mode 0600 (default none)")
	flags.BoolVar(&cfg.ModelControl, "model-control", false, "let clients of the function port that send a token of --admin-token-file load and unload models (Open Inference Protocol, TensorFlow Serving)")
	flags.StringVar(&cfg.Cert, "cert", "", "certificate of the function port with its chain, PEM: the port speaks TLS, HTTP/1.1 and HTTP/2, and so does the gRPC port (default clear text)")
	flags.StringVar(&cfg.Key, "key", "", "key of the function port's certificate, PEM (default none)")
	flags.StringVar(&cfg.ClientCA, "client-ca", "", "authorities of clients' certificates, PEM: every client of the function port must have one (default none)")
	flags.StringVar(&cfg.AdminCert, "admin-cert", "", "certificate of the admin port with its chain, PEM (default none)")
	flags.StringVar(&cfg.AdminKey, "admin-key", "", "key of the admin port's certificate, PEM (default none)")
	flags.BoolVar(&cfg.AllowBuild, "allow-build", false, "build packages from source that models ask for in requirements.txt and that have no wheel, which runs their code with the network")
	flags.StringSliceVar(&cfg.AllowedHosts, "allowed-hosts", nil, "hosts by which browsers reach the function port beside loopback ones, such as that of a proxy, separated by commas; *.example.com means all names below example.com (default none)")
	flags.StringSliceVar(&cfg.ReadyRequires, "ready-requires", nil, "functions without which /readyz says 503, separated by commas, or all (default none: a function that fails is shown by /readyz?verbose)")
	flags.StringVar(&cfg.Python, "python", "", `interpreter that "python" means in commands of models that name no environment (default python3)`)
	flags.StringVar(&logLevel, "log-level", logLevel, "least severe log entries to write to stderr: debug, info, warn, error")
	flags.StringVar(&logFormat, "log-format", logFormat, "format of log entries: console, for people, or json, one object a line")
	flags.StringVar(&maxBody, "max-body", maxBody, "largest request body, in bytes or with KiB, MiB, GiB; below 2GiB")
	flags.IntVar(&cfg.Connections, "max-connections", http.DefaultLimits().Connections, "most client connections of the function port at a time; each needs two open files")
	limits := http.DefaultLimits()
	flags.DurationVar(&cfg.FirstByteTimeout, "first-byte-timeout", limits.FirstByteTimeout, "how long a connection may be open before it sends something; 0 for any time")
	flags.DurationVar(&cfg.HeaderTimeout, "header-timeout", limits.HeaderTimeout, "how long the header of a request may take to arrive; 0 for any time")
	flags.DurationVar(&cfg.IdleTimeout, "idle-timeout", limits.IdleTimeout, "how long a connection may be silent between requests; 0 for any time")
	flags.StringVar(&minRate, "min-rate", minRate, "lowest rate at which a body must arrive and an answer be read after 10 seconds, in bytes a second or with KiB, MiB, GiB; 0 for any rate")
	flags.StringVar(&bodyMemory, "body-memory", "", "memory for the bodies of all requests in flight on both ports, in bytes or with KiB, MiB, GiB; 0 for any amount (default a quarter of the memory of the machine or of its control group)")
	flags.DurationVar(&cfg.DrainTimeout, "drain-timeout", 10*time.Second, "how long requests and replicas may take to finish when the gateway stops")
	flags.DurationVar(&cfg.LameDuck, "lame-duck", 0, "how long to go on serving after SIGTERM while /readyz answers 503, so that load balancers notice; 0 to 1h (default 0)")
	flags.DurationVar(&epoch, "epoch", epoch, "how often to plan which models answer which queries, 1ms to 10s; 0 turns planning off")
	flags.DurationVar(&cfg.BusyPoll, "busy-poll", 0, "how long to look for the next request and the next answer of a replica before sleeping, while one is expected, 1µs to 1ms; off on two cores or fewer (default 0, which sleeps at once)")
	flags.StringSliceVar(&cfg.Devices, "device", nil, "names of devices that models may share, separated by commas (default the NVIDIA devices of this machine, as gpu0 and so on)")
	flags.Float64Var(&cfg.NodeCPU, "node-cpu", 0, "cores that this machine has for replicas (default what the system reports)")
	flags.StringVar(&nodeMemory, "node-memory", "", "memory that this machine has for replicas, in bytes or with KiB, MiB, GiB (default what the system reports, less a reserve)")
	flags.StringVar(&cfg.Docker, "docker", "", "Docker engine of this host for models with an image: unix:///PATH (default DOCKER_HOST, else unix:///var/run/docker.sock)")
	flags.StringVar(&cache, "cache", "", "memory for the prediction cache, in bytes or with KiB, MiB, GiB; 0 turns it off (default 256MiB, or an eighth of the memory of the machine or of its control group if that is less)")
	flags.StringVar(&cfg.Store, "store", "", "store of declarations and learned state: a file, or redis://[USER:PASSWORD@]HOST:PORT[/DB], which gateways may share (XEBEC_STORE) (default state.db in --data-dir)")
	flags.IntVar(&cfg.FeedbackWindow, "feedback-window", query.DefaultFeedbackWindow, "how many recent queries feedback can name by query_id; 0 for none")
	flags.StringVar(&feedbackMemory, "feedback-memory", feedbackMemory, "memory for the inputs and predictions of queries that wait for feedback, for policies and models that learn from them, in bytes or with KiB, MiB, GiB; the oldest make room; 0 for none")
	flags.IntVar(&cfg.Contexts, "contexts", learned.DefaultContexts, "how many contexts of each function are kept in memory; the others wait in the store")
	return cmd
}

// grpcFlag reads --grpc-listen. The default may be taken by another gateway, an address that is given may not.
func grpcFlag(address string, given bool) (string, error) {
	switch {
	case address == "off":
		return server.NoPort, nil
	case !given:
		return "", nil
	}
	return hostPort("--grpc-listen", address)
}

// edgeFlags reads the flags that bound connections. In a flag 0 means no bound, in a Config the default.
func edgeFlags(cfg *server.Config, minRate, bodyMemory string) (err error) {
	for name, d := range map[string]*time.Duration{"--first-byte-timeout": &cfg.FirstByteTimeout, "--header-timeout": &cfg.HeaderTimeout, "--idle-timeout": &cfg.IdleTimeout} {
		if *d < 0 {
			return usagef("%s %s: expected 0 or more", name, *d)
		}
		if *d == 0 {
			*d = -1
		}
	}
	if cfg.MinRate, err = parseBytes(minRate, 0, maxMinRate); err != nil {
		return usagef("--min-rate %s: %w", minRate, err)
	}
	if cfg.MinRate == 0 {
		cfg.MinRate = -1
	}
	cfg.BodyMemoryBytes, err = memoryFlag("--body-memory", bodyMemory, maxBodyMemory)
	return err
}

// memoryFlag reads a flag whose default follows the memory of the machine: a Config has 0 for that, and -1 for the flag's 0.
func memoryFlag(name, text string, most int64) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := parseBytes(text, 0, most)
	if err != nil {
		return 0, usagef("%s %s: %w", name, text, err)
	}
	if n == 0 {
		return -1, nil
	}
	return n, nil
}

// Bounds of flags, which catch typing errors. A remembered query takes a few hundred bytes, and so does a context in
// memory.
const (
	maxCacheBytes     = 1 << 40   //xebec:limit `--cache`
	maxFeedbackWindow = 1 << 24   //xebec:limit `--feedback-window`
	maxFeedbackMemory = 1 << 40   //xebec:limit `--feedback-memory`
	maxContexts       = 1 << 22   //xebec:limit `--contexts`
	maxConnections    = 1 << 20   //xebec:limit `--max-connections`
	maxMinRate        = 1 << 30   //xebec:limit `--min-rate`
	maxBodyMemory     = 1 << 50   //xebec:limit `--body-memory`
	maxSnapshotLimit  = 1 << 50   //xebec:limit `--snapshot-limit`
	maxLameDuck       = time.Hour //xebec:limit `--lame-duck`
	minLogBytes       = inferlog.MinMaxBytes
	maxLogBytes       = 1 << 50
	minModelsEvery    = 10 * time.Millisecond //xebec:limit shortest `--models-interval`
	maxModelsEvery    = time.Hour             //xebec:limit longest `--models-interval`
)

// noDataDir is the value of --data-dir that keeps nothing.
const noDataDir = "none"

// defaultDataDir is where a gateway keeps its files by default: the state directory of the XDG base directory
// specification. Without a home it is "", which keeps nothing.
func (c *cli) defaultDataDir() string {
	if dir := c.getenv("XEBEC_DATA_DIR"); dir != "" {
		return dir
	}
	if dir := c.getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "xebec")
	}
	if home := c.getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "xebec")
	}
	return ""
}

// Bounds of --epoch, unless it is 0. With a shorter epoch planning costs more than it gains; with a longer one the plan
// is for a past load.
const (
	minEpoch     = time.Millisecond //xebec:limit shortest `--epoch`
	defaultEpoch = 10 * time.Millisecond
	maxEpoch     = 10 * time.Second //xebec:limit longest `--epoch`
)

// checkEpoch converts --epoch for the configuration, where a negative epoch turns planning off.
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
			return usagef("--device: %q is given twice", name)
		}
	}
	return nil
}

// parseBytes reads "65536", "64KiB", "64MiB", "1GiB", within bounds.
func parseBytes(s string, low, high int64) (int64, error) {
	n, err := api.ParseBytes(s)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("expected %d to %d bytes, such as 64MiB", low, high)
	}
	return n, nil
}
