package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/admin"
)

func (c *cli) scaleCommand() *cobra.Command {
	var (
		edit   scaleEdit
		format string
	)
	cmd := &cobra.Command{
		Use:   "scale MODEL[@VERSION]",
		Short: "Change the bounds of a model's replicas",
		Long: `Change the bounds of a model version's replicas; without a version, of the one that serves. Bounds without a flag stay as they are. So a
--min above the present maximum is refused, and a --max below the present minimum: give both.

With --min below --max the number of replicas follows the queries. With --min 0, a model without a query for --idle has no replicas: the
next query starts one and waits for it. --replicas N is --min N --max N.`,
		Example: `  xebec scale digits --min 0 --max 4 --idle 10m
  xebec scale digits@3 --replicas 2
  xebec scale digits --min 2            # keep at least two, from now on`,
		Args:              exactly("MODEL[@VERSION]"),
		ValidArgsFunction: c.completeName(api.KindModel),
		RunE: func(cmd *cobra.Command, args []string) error {
			edit.given = cmd.Flags().Changed
			return c.scale(cmd.Context(), args[0], format, &edit)
		},
	}
	f := cmd.Flags()
	f.IntVar(&edit.min, "min", 0, "fewest replicas; with 0 the model may sleep")
	f.IntVar(&edit.max, "max", 0, "most replicas")
	f.IntVar(&edit.replicas, "replicas", 0, "fixed number of replicas")
	f.DurationVar(&edit.idle, "idle", 0, "with --min 0: how long the last replica stays without a query")
	outputFlag(cmd, &format)
	return cmd
}

// scaleEdit has the values of the flags. given reports whether a flag was given.
type scaleEdit struct {
	min, max, replicas int
	idle               time.Duration
	given              func(flag string) bool
}

func (e *scaleEdit) apply(r *api.ReplicaBounds) error {
	switch {
	case e.given("replicas") && (e.given("min") || e.given("max")):
		return usagef("--replicas sets both --min and --max: give it alone, or those two")
	case !e.given("replicas") && !e.given("min") && !e.given("max") && !e.given("idle"):
		return usagef("nothing to change: give --min, --max, --replicas or --idle")
	case e.given("replicas"):
		if e.replicas < 1 {
			return usagef("--replicas %d: expected 1 to %d; --min 0 lets a model sleep", e.replicas, api.MaxReplicas)
		}
		r.Min, r.Max = e.replicas, e.replicas
	}
	if e.given("min") {
		r.Min = e.min
	}
	if e.given("max") {
		if r.Max = e.max; r.Max < 1 {
			return usagef("--max %d: expected 1 to %d", e.max, api.MaxReplicas)
		}
	}
	switch {
	case e.given("min") && !e.given("max") && r.Min > r.Max && r.Min <= api.MaxReplicas:
		return usagef("--min %d is more than replicas.max, %d: give --max too, such as --min %d --max %d", r.Min, r.Max, r.Min, r.Min)
	case e.given("max") && !e.given("min") && r.Min > r.Max:
		return usagef("--max %d is less than replicas.min, %d: give --min too, such as --min %d --max %d", r.Max, r.Min, r.Max, r.Max)
	}
	if r.Initial != 0 {
		r.Initial = min(max(r.Initial, r.Min), r.Max)
	}
	if e.given("idle") {
		r.Idle = e.idle
	}
	return nil
}

func (c *cli) scale(ctx context.Context, ref, format string, edit *scaleEdit) error {
	id, err := api.ParseModelRef(ref)
	if err != nil {
		return usageError{err}
	}
	return c.edit(ctx, format, func() (*manifest.Set, uint64, error) {
		models, err := c.modelsWith(ctx, id.Name, true) // all of it is sent back
		if err != nil {
			return nil, 0, err
		}
		m := served(models)
		if id.Version != "" {
			m = findVersion(models, id)
		}
		if m == nil {
			return nil, 0, fmt.Errorf("model %s is not declared: %q lists the models", ref, "xebec get models")
		}
		spec := m.Spec
		if err := edit.apply(&spec.Replicas); err != nil {
			return nil, 0, err
		}
		if spec.Dir == "" {
			spec.Dir = m.Dir
		}
		return &manifest.Set{Models: []api.ModelSpec{spec}}, m.Revision, spec.Validate()
	})
}

// noteConfig warns about changes that the next start of the gateway undoes, because --config declares the objects at
// each start. The history says so. If it cannot be read there is no warning: the change itself succeeded.
func (c *cli) noteConfig(ctx context.Context, changes []api.Change) {
	for _, ch := range changes {
		var h api.History
		if ch.Action != api.Updated || c.get(ctx, fmt.Sprintf("/v1/history/%s?limit=%d", ch.Name, admin.MaxHistory), &h) != nil {
			continue
		}
		byConfig := func(e api.HistoryEvent) bool {
			return e.By == "--config" && e.Kind == ch.Kind && e.Name == ch.Name && e.Version == ch.Version
		}
		if slices.ContainsFunc(h.Events, byConfig) {
			fmt.Fprintf(c.err, "note: --config declared %s: if its files still do, the next start undoes this change; change it there too\n", changeName(ch))
		}
	}
}

// served is the version that serves, otherwise the newest.
func served(models []api.ModelStatus) *api.ModelStatus {
	var newest *api.ModelStatus
	for i := range models {
		m := &models[i]
		if m.Serving {
			return m
		}
		if newest == nil || api.CompareVersions(m.Spec.Version, newest.Spec.Version) > 0 {
			newest = m
		}
	}
	return newest
}
