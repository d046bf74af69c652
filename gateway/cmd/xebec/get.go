package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

func (c *cli) getCommand() *cobra.Command {
	var (
		format  string
		secrets bool
	)
	kinds := []string{"models", "functions", "replicas", "traffic"}
	cmd := &cobra.Command{
		Use:   "get models|functions|replicas|traffic [NAME]",
		Short: "List models, functions, replicas or traffic rules",
		Long: `List models, functions, replicas or traffic rules. Replicas and traffic rules are named by their model.

PHASE is the stage of a version's life: declared, loading, validating, available, draining or rejected. SHARE is the share of its model's
queries that it answers. SERVING marks the version that serves with *.

With -o yaml or -o json, models, functions and traffic rules are printed as declarations, with their defaults, in the form that "xebec
apply" reads. "xebec describe" prints their status. Values of models' environment variables are masked unless --show-secrets is given, and
"xebec apply" refuses masked ones.`,
		Example: `  xebec get models
  xebec get functions digits -o yaml`,
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
			if strings.EqualFold(args[0], "replicas") || strings.EqualFold(args[0], "replica") {
				return c.getReplicas(cmd.Context(), name, format)
			}
			switch kind {
			case api.KindModel:
				return c.getModels(cmd.Context(), name, format, secrets)
			case api.KindFunction:
				return c.getFunctions(cmd.Context(), name, format)
			case api.KindTraffic:
				return c.getTraffic(cmd.Context(), name, format)
			}
			return usagef("get %s: expected one of %s", args[0], strings.Join(kinds, ", "))
		},
	}
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

func (c *cli) getModels(ctx context.Context, name, format string, secrets bool) error {
	models, err := c.modelsWith(ctx, name, secrets)
	if err != nil {
		return err
	}
	if format != formatTable {
		set := &manifest.Set{}
		for i := range models {
			set.Models = append(set.Models, models[i].Spec)
		}
		return c.printSet(format, set)
	}
	traffic, err := c.traffic(ctx, name)
	if err != nil {
		return err
	}
	shares := sharesOf(traffic)
	return c.table("NAME\tVERSION\tPHASE\tSERVING\tSHARE\tSTATE\tREADY\tQUEUE\tOK\tFAILED\tAGE", len(models), "models", func(w io.Writer) {
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
	})
}

func (c *cli) getFunctions(ctx context.Context, name, format string) error {
	var list api.FunctionList
	if err := c.list(ctx, "/v1/functions", "function", name, &list); err != nil {
		return err
	}
	functions := list.Functions
	slices.SortStableFunc(functions, func(a, b api.FunctionStatus) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	if format != formatTable {
		set := &manifest.Set{}
		for i := range functions {
			set.Functions = append(set.Functions, functions[i].Spec)
		}
		return c.printSet(format, set)
	}
	return c.table("NAME\tMODELS\tSLO\tREADY\tOK\tDEFAULTS\tFAILED\tAGE", len(functions), "functions", func(w io.Writer) {
		for i := range functions {
			f := &functions[i]
			ok, failed := api.CountQueries(f.Queries)
			failed -= min(f.Defaults, failed) // a default is an answer
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", f.Spec.Name, strings.Join(f.Spec.Models, ","), f.Spec.SLO,
				yesNo(f.Ready), ok, f.Defaults, failed, c.age(f.Created))
		}
	})
}

// replica is a replica with its model version.
type replica struct {
	Model   string `json:"model"`
	Version string `json:"version"`
	api.ReplicaStatus
}

func (c *cli) getReplicas(ctx context.Context, model, format string) error {
	models, err := c.models(ctx, model)
	if err != nil {
		return err
	}
	all := []replica{}
	for i := range models {
		for _, r := range models[i].Replicas {
			all = append(all, replica{models[i].Spec.Name, models[i].Spec.Version, r})
		}
	}
	if format != formatTable {
		return c.printJSON(format, all)
	}
	return c.table("MODEL\tVERSION\tREPLICA\tPID\tSTATE\tSINCE\tRESTARTS\tCAP\tMEAN\tP99\tQUERIES", len(all), "replicas", func(w io.Writer) {
		for _, r := range all {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%d\n", r.Model, r.Version, r.ID, pid(r.PID), r.State, c.age(r.Since),
				r.Restarts, r.Cap, micros(r.Profile.MeanMicros), micros(r.Profile.P99Micros), r.Queries)
		}
	})
}

func (c *cli) printSet(format string, set *manifest.Set) error {
	if format == formatYAML && set.Len() == 0 {
		return nil // a stream of no documents
	}
	text, err := set.JSON()
	if format == formatYAML {
		text, err = set.YAML()
	}
	if err != nil {
		return err
	}
	_, err = c.out.Write(text)
	return err
}

// table writes aligned columns. If there are no rows it says so on stderr, so that a script reads nothing.
func (c *cli) table(head string, rows int, what string, write func(io.Writer)) error {
	if rows == 0 {
		fmt.Fprintf(c.err, "no %s\n", what)
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, head)
	write(w)
	return w.Flush()
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
