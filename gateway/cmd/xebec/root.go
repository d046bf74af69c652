package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// The addresses of a gateway that was started without flags.
const (
	defaultServer = "127.0.0.1:1337"
	defaultAdmin  = "127.0.0.1:1338"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitTrouble = 3
)

// cli is what all commands share. The package has no global state, so tests run commands in parallel.
type cli struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string

	admin, server string
	// tokenFile has the token for the admin port, ca the certificates that a TLS port is verified with, clientCert and clientKey what
	// it is shown.
	tokenFile, ca         string
	clientCert, clientKey string
	now                   func() time.Time
	pollEvery             time.Duration
	http                  *http.Client
	credentials           credentials
	signals               chan os.Signal // of a gateway, since the start of the program; may be nil
	unread                sync.Once      // warns that a list is not complete
}

// usageError is a command line that was not understood.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run executes one command line and returns the exit status.
func (c *cli) run(ctx context.Context, args []string) int {
	c.http = newHTTPClient()
	c.credentials.user = c.caller()
	defer c.http.CloseIdleConnections()
	root := c.root()
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var usage usageError
	var trouble troubleError
	switch {
	case errors.Is(err, errDiffers):
	case errors.As(err, &trouble):
		fmt.Fprintf(c.err, "xebec: %s\n", err)
		return exitTrouble
	case errors.As(err, &usage):
		fmt.Fprintf(c.err, "xebec: %s\n", err)
		return exitUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(c.err, "xebec: interrupted")
	default:
		fmt.Fprintf(c.err, "xebec: %s\n", err)
	}
	return exitFailure
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "xebec",
		Short: "Serve machine-learning models as HTTP functions",
		Long: `Xebec serves machine-learning models as HTTP functions.

Start a gateway with "xebec serve", then declare a model with "xebec deploy DIR" and call it with "xebec invoke NAME".`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.PersistentFlags().StringVar(&c.admin, "admin", c.env("XEBEC_ADMIN", defaultAdmin), "address of the gateway's admin port (XEBEC_ADMIN)")
	root.PersistentFlags().StringVar(&c.server, "server", c.env("XEBEC_SERVER", defaultServer), "address of the gateway's function port (XEBEC_SERVER)")
	root.PersistentFlags().StringVar(&c.tokenFile, "token-file", c.env("XEBEC_TOKEN_FILE", ""), "file with the token for the admin port (XEBEC_TOKEN_FILE)")
	root.PersistentFlags().StringVar(&c.ca, "ca", c.env("XEBEC_CA", ""), "file with the certificates to trust at https:// addresses, instead of the system's (XEBEC_CA)")
	root.PersistentFlags().StringVar(&c.clientCert, "client-cert", c.env("XEBEC_CLIENT_CERT", ""), "certificate that is shown to https:// addresses that want one, PEM (XEBEC_CLIENT_CERT)")
	root.PersistentFlags().StringVar(&c.clientKey, "client-key", c.env("XEBEC_CLIENT_KEY", ""), "the key of --client-cert, PEM (XEBEC_CLIENT_KEY)")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(c.serveCommand(), c.initCommand(), c.applyCommand(), c.diffCommand(), c.deployCommand(), c.waitCommand(), c.invokeCommand(), c.feedbackCommand(), c.getCommand(), c.describeCommand(),
		c.deleteCommand(), c.logsCommand(), c.trafficCommand(), c.promoteCommand(), c.rollbackCommand(), c.historyCommand(), c.exportCommand(), c.learnCommand(),
		c.devCommand(), c.tryCommand(), c.profileCommand(), c.topCommand(), c.replayCommand(), c.scaleCommand(), c.tableCommand(), c.planCommand(), c.upgradeCommand(), c.versionCommand())
	root.InitDefaultCompletionCmd()
	return root
}

// env reads an environment variable with a default.
func (c *cli) env(name, byDefault string) string {
	if v := c.getenv(name); v != "" {
		return v
	}
	return byDefault
}

// exactly takes one argument for each name, and names them in its error.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names):
			return nil
		case len(names) == 0:
			return usagef("%s takes flags but no arguments; got %q", cmd.CommandPath(), args[0])
		}
		return usagef("%s takes %s; got %d arguments", cmd.CommandPath(), strings.Join(names, " "), len(args))
	}
}

// atMostOne takes one argument or none.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%s takes at most %s; got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// The output formats of -o.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command, format *string) {
	formats := []string{formatTable, formatJSON, formatYAML}
	cmd.Flags().StringVarP(format, "output", "o", formatTable, "what to print: "+strings.Join(formats, ", "))
	completeFlag(cmd, "output", formats...)
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, *format) {
			return usagef("-o %s: expected %s", *format, strings.Join(formats, ", "))
		}
		return inner(cmd, args)
	}
}

// completeFlag completes the value of a flag with fixed words.
func completeFlag(cmd *cobra.Command, flag string, words ...string) {
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// kindArgument reads "model", "models", "function" …. Replicas and the gateway are not declared, so they have no kind.
func kindArgument(s string) (api.Kind, bool) {
	switch strings.ToLower(s) {
	case "model", "models":
		return api.KindModel, true
	case "function", "functions":
		return api.KindFunction, true
	case "traffic":
		return api.KindTraffic, true
	}
	return "", false
}

// names are the names of all objects of a kind. It is for completion, so errors count as no names.
func (c *cli) names(ctx context.Context, kind api.Kind) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	var all []string
	switch kind {
	case api.KindTraffic:
		var list api.TrafficList
		if c.get(ctx, "/v1/traffic", &list) != nil {
			return nil
		}
		for i := range list.Traffic {
			all = append(all, list.Traffic[i].Spec.Model)
		}
	case api.KindModel:
		var list api.ModelList
		if c.get(ctx, "/v1/models", &list) != nil {
			return nil
		}
		for _, m := range list.Models {
			all = append(all, m.Spec.Name)
		}
	case api.KindFunction:
		var list api.FunctionList
		if c.get(ctx, "/v1/functions", &list) != nil {
			return nil
		}
		for _, f := range list.Functions {
			all = append(all, f.Spec.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// completionTimeout is how long the Tab key may take.
const completionTimeout = time.Second

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeName completes the only argument with the names of some kinds.
func (c *cli) completeName(kinds ...api.Kind) completion {
	return func(cmd *cobra.Command, args []string, _ string) (all []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 {
			for _, kind := range kinds {
				all = append(all, c.names(cmd.Context(), kind)...)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeKindAndName completes a kind, then a name of that kind.
func (c *cli) completeKindAndName(kinds ...string) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return kinds, cobra.ShellCompDirectiveNoFileComp
		case 1:
			if args[0] == "replicas" {
				args[0] = "models"
			}
			if kind, ok := kindArgument(args[0]); ok {
				return c.names(cmd.Context(), kind), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// readInput reads a file, or stdin for "-", up to a limit.
func (c *cli) readInput(path string, limit int64) ([]byte, error) {
	in := c.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// print writes JSON in the format of -o.
func (c *cli) print(format string, text []byte) error {
	var err error
	if format == formatYAML {
		text, err = manifest.YAMLFromJSON(text)
	} else {
		text, err = indented(text)
	}
	if err != nil {
		return fmt.Errorf("cannot print the gateway's answer: %w", err)
	}
	_, err = c.out.Write(text)
	return err
}

// printJSON encodes a value and writes it in the format of -o.
func (c *cli) printJSON(format string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.print(format, text)
}
