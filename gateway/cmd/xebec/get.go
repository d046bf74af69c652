package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

func (c *cli) getCommand() *cobra.Command {
	var (
		format         string
		secrets, watch bool
	)
	kinds := []string{"models", "functions", "replicas", "traffic"}
	cmd := &cobra.Command{
		Use:   "get models|functions|replicas|traffic [NAME]",
		Short: "List models, functions, replicas or traffic rules",
		Long: `List models, functions, replicas or traffic rules. Replicas and traffic rules are named by their model.

PHASE is the stage of a version's life: declared, loading, validating, available, draining or rejected. SHARE is the share of its model's
queries that it answers. SERVING marks the version that serves with *.

With -o yaml or -o json, models, functions and traffic rules are printed as declarations, with their defaults, in the form that "xebec
apply" reads. With -o json each of them has the member status, which apply ignores: what the gateway says of it now. "xebec describe" shows
it to people. Values of models' environment variables are masked unless --show-secrets is given, and "xebec apply" refuses masked ones.

With -w it goes on: a row is printed again when its object has changed. Numbers of queries and ages alone are no change.`,
		Example: `  xebec get models
  xebec get functions digits -o yaml
  xebec get models -o json | jq '.[] | {name, version, state: .status.state}'
  xebec get models -w`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("nothing to get: expected one of %s, and a name if you want only one", strings.Join(kinds, ", "))
			}
			return nil
		},
		ValidArgsFunction: c.completeKindAndName(kinds...),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 2 {
				name = args[1]
			}
			kind, _ := kindArgument(args[0])
			if secrets && (kind != api.KindModel || format == formatTable) {
				return usagef("--show-secrets shows environments of models: expected get models with -o yaml or -o json")
			}
			if watch && format != formatTable {
				return usagef("-w prints a table whose rows it repeats when they change: expected it without -o")
			}
			list := func(ctx context.Context) (*listing, error) { return c.listReplicas(ctx, name) }
			switch kind {
			case api.KindModel:
				list = func(ctx context.Context) (*listing, error) { return c.listModels(ctx, name, secrets) }
			case api.KindFunction:
				list = func(ctx context.Context) (*listing, error) { return c.listFunctions(ctx, name) }
			case api.KindTraffic:
				list = func(ctx context.Context) (*listing, error) { return c.listTraffic(ctx, name) }
			default:
				if !strings.EqualFold(args[0], "replicas") && !strings.EqualFold(args[0], "replica") {
					return unknownKind("get", args[0], kinds)
				}
			}
			if watch {
				return c.watch(cmd.Context(), list)
			}
			l, err := list(cmd.Context())
			if err != nil {
				return err
			}
			return c.show(format, l)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print a row again when its object has changed, until it is interrupted")
	outputFlag(cmd, &format)
	secretsFlag(cmd, &secrets)
	return cmd
}

// secretsFlag adds --show-secrets.
func secretsFlag(cmd *cobra.Command, show *bool) {
	cmd.Flags().BoolVar(show, "show-secrets", false, "show the values of models' environment variables; the gateway's log says who saw them")
}

// withSecrets is a path of the admin API, with the parameter that asks for the values of environment variables.
func withSecrets(path string, show bool) string {
	if show {
		path += "?secrets=true"
	}
	return path
}

// list gets a list from a path, or the part of it under a name.
func (c *cli) list(ctx context.Context, path, what, name string, into any) error {
	if name != "" {
		if err := api.CheckName(what, name); err != nil {
			return usageError{err}
		}
		return c.get(ctx, path+"/"+name, into)
	}
	return c.getList(ctx, path, into)
}

// models gets all models, or the versions of one, sorted, with masked environments.
func (c *cli) models(ctx context.Context, name string) ([]api.ModelStatus, error) {
	return c.modelsWith(ctx, name, false)
}

// modelsWith is models, with secrets if these are asked for.
func (c *cli) modelsWith(ctx context.Context, name string, secrets bool) ([]api.ModelStatus, error) {
	path, get := "/v1/models", c.getList
	if name != "" {
		if err := api.CheckName("model", name); err != nil {
			return nil, usageError{err}
		}
		path, get = path+"/"+name, c.get
	}
	var list api.ModelList
	err := get(ctx, withSecrets(path, secrets), &list)
	slices.SortStableFunc(list.Models, func(a, b api.ModelStatus) int {
		if a.Spec.Name != b.Spec.Name {
			return strings.Compare(a.Spec.Name, b.Spec.Name)
		}
		return api.CompareVersions(a.Spec.Version, b.Spec.Version)
	})
	return list.Models, err
}

func (c *cli) listModels(ctx context.Context, name string, secrets bool) (*listing, error) {
	models, err := c.modelsWith(ctx, name, secrets)
	if err != nil {
		return nil, err
	}
	traffic, err := c.traffic(ctx, name)
	if err != nil {
		return nil, err
	}
	set := &manifest.Set{}
	for i := range models {
		set.Models = append(set.Models, models[i].Spec)
	}
	shares := sharesOf(traffic)
	return &listing{
		what: "models", head: "NAME\tVERSION\tPHASE\tSERVING\tSHARE\tSTATE\tREADY\tQUEUE\tOK\tFAILED\tAGE", rows: len(models),
		set: set, status: func(i int) any { return &models[i] },
		write: func(w io.Writer) {
			for i := range models {
				m := &models[i]
				serving := ""
				if m.Serving {
					serving = "*"
				}
				ok, failed := api.CountQueries(m.Queries)
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d/%d\t%d\t%d\t%d\t%s\n", m.Spec.Name, m.Spec.Version, orDash(string(m.Version.Phase)), serving, shares.of(m), m.State,
					m.ReadyReplicas(), wantedReplicas(m), m.QueueDepth, ok, failed, c.age(m.Created))
			}
		},
	}, nil
}

func (c *cli) listFunctions(ctx context.Context, name string) (*listing, error) {
	var list api.FunctionList
	if err := c.list(ctx, "/v1/functions", "function", name, &list); err != nil {
		return nil, err
	}
	functions := list.Functions
	slices.SortStableFunc(functions, func(a, b api.FunctionStatus) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	set := &manifest.Set{}
	for i := range functions {
		set.Functions = append(set.Functions, functions[i].Spec)
	}
	return &listing{
		what: "functions", head: "NAME\tMODELS\tSLO\tREADY\tOK\tDEFAULTS\tFAILED\tAGE", rows: len(functions),
		set: set, status: func(i int) any { return &functions[i] },
		write: func(w io.Writer) {
			for i := range functions {
				f := &functions[i]
				ok, failed := api.CountQueries(f.Queries)
				failed -= min(f.Defaults, failed) // a default is an answer
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", f.Spec.Name, strings.Join(f.Spec.Models, ","), f.Spec.SLO,
					yesNo(f.Ready), ok, f.Defaults, failed, c.age(f.Created))
			}
		},
	}, nil
}

// replica is a replica with its model version.
type replica struct {
	Model   string `json:"model"`
	Version string `json:"version"`
	api.ReplicaStatus
}

func (c *cli) listReplicas(ctx context.Context, model string) (*listing, error) {
	models, err := c.models(ctx, model)
	if err != nil {
		return nil, err
	}
	all := []replica{}
	for i := range models {
		for _, r := range models[i].Replicas {
			all = append(all, replica{models[i].Spec.Name, models[i].Spec.Version, r})
		}
	}
	return &listing{
		what: "replicas", head: "MODEL\tVERSION\tREPLICA\tPID\tSTATE\tSINCE\tRESTARTS\tCAP\tMEAN\tP99\tQUERIES", rows: len(all), plain: all,
		write: func(w io.Writer) {
			for _, r := range all {
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%d\n", r.Model, r.Version, r.ID, pid(r.PID), r.State, c.age(r.Since),
					r.Restarts, r.Cap, micros(r.Profile.MeanMicros), micros(r.Profile.P99Micros), r.Queries)
			}
		},
	}, nil
}

// countsText is "2 late, 12 ok": the counts that are not 0, sorted by name.
func countsText[N int | uint64](byName map[string]N) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if n := byName[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	return strings.Join(parts, ", ")
}

// age is how long ago t was, in the one or two largest units.
func (c *cli) age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := max(c.now().Sub(t), 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

func micros(n int64) string {
	if n == 0 {
		return "-"
	}
	return (time.Duration(n) * time.Microsecond).String()
}

func pid(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
