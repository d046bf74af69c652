package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

func (c *cli) trafficCommand() *cobra.Command {
	var (
		edit   trafficEdit
		format string
	)
	cmd := &cobra.Command{
		Use:   "traffic MODEL",
		Short: "Show or change how a model's queries are divided between its versions",
		Long: `Show how a model's queries are divided between its versions, or change it with flags. Parts of the rule without a flag stay as they are.

  --serving  pins the version that answers; "newest" follows the newest version that may serve
  --split    gives a percentage of the answers to another version, always for the same contexts
  --shadow   asks another version too for a percentage of the queries, and only compares its answers
  --rollout  lets feedback move the answers to another version; a guard moves them back if it is worse
  --label    gives a version another name: digits@canary; "canary=" removes the label

"xebec promote" and "xebec rollback" end a split, a shadow or a roll-out.`,
		Example: `  xebec traffic digits
  xebec traffic digits --serving 3 --split 4=10
  xebec traffic digits --rollout 4 --min-feedback 500
  xebec traffic digits --label canary=4 --clear split`,
		Args:              exactly("MODEL"),
		ValidArgsFunction: c.completeName(api.KindModel),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := api.CheckName("model", args[0]); err != nil {
				return usageError{err}
			}
			edit.given = cmd.Flags().Changed
			if !edit.any() {
				return c.showTraffic(cmd.Context(), args[0], format)
			}
			return c.changeTraffic(cmd.Context(), args[0], format, &edit)
		},
	}
	edit.flags(cmd)
	outputFlag(cmd, &format)
	return cmd
}

// trafficEdit has the values of the flags. given reports whether a flag was given.
type trafficEdit struct {
	serving, split, shadow, rollout, policy, transition string
	minFeedback, latest                                 int
	maxErrorIncrease, maxP99Increase                    float64
	all                                                 bool
	specific, labels, clear                             []string

	given func(flag string) bool
}

// rolloutFlags are the flags of a roll-out, beside --rollout.
var rolloutFlags = []string{"policy", "min-feedback", "max-error-increase", "max-p99-increase"}

// clearable are the parts that --clear removes.
var clearable = map[string]func(*api.TrafficSpec){
	"split":    func(t *api.TrafficSpec) { t.Split = nil },
	"shadow":   func(t *api.TrafficSpec) { t.Shadow = nil },
	"rollout":  func(t *api.TrafficSpec) { t.Rollout = nil },
	"serving":  func(t *api.TrafficSpec) { t.Serving = "" },
	"labels":   func(t *api.TrafficSpec) { t.Labels = nil },
	"rollback": func(t *api.TrafficSpec) { t.Rollback, t.RolledBack = nil, nil },
	"versions": func(t *api.TrafficSpec) { t.Versions = api.VersionPolicy{} },
}

func (e *trafficEdit) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.serving, "serving", "", `version that serves, or "newest"`)
	f.StringVar(&e.split, "split", "", "VERSION=PERCENT of the answers")
	f.StringVar(&e.shadow, "shadow", "", "VERSION=PERCENT of the queries to compare")
	f.StringVar(&e.rollout, "rollout", "", "version to move the answers to, as feedback allows")
	f.StringVar(&e.policy, "policy", api.PolicyExp3, "policy of the roll-out: "+strings.Join(api.RolloutPolicies, ", "))
	f.IntVar(&e.minFeedback, "min-feedback", api.DefaultMinFeedback, "answers of each version that need feedback before the new one can be promoted")
	f.Float64Var(&e.maxErrorIncrease, "max-error-increase", api.DefaultMaxErrorIncrease, "how much higher the mean loss and the failure rate of the new version may be")
	f.Float64Var(&e.maxP99Increase, "max-p99-increase", api.DefaultMaxP99Increase, "how much longer the P99 of the new version may be; 0.5 means 50% longer")
	f.StringArrayVar(&e.labels, "label", nil, "LABEL=VERSION, or LABEL= to remove the label; may be repeated")
	f.IntVar(&e.latest, "latest", 0, "load this many of the newest versions")
	f.BoolVar(&e.all, "all", false, "load all versions")
	f.StringSliceVar(&e.specific, "specific", nil, "load these versions: 3,4")
	f.StringVar(&e.transition, "transition", "", "availability: load the new version first; resources: unload the old version first")
	parts := slices.Sorted(maps.Keys(clearable))
	f.StringArrayVar(&e.clear, "clear", nil, "remove a part of the rule: "+strings.Join(parts, ", ")+"; may be repeated")
	for flag, words := range map[string][]string{
		"clear": parts, "policy": api.RolloutPolicies, "transition": {api.TransitionAvailability, api.TransitionResources}, "serving": {"newest"},
	} {
		completeFlag(cmd, flag, words...)
	}
}

func (e *trafficEdit) any() bool {
	others := []string{"serving", "split", "shadow", "rollout", "label", "latest", "all", "specific", "transition", "clear"}
	return slices.ContainsFunc(slices.Concat(rolloutFlags, others), e.given)
}

// apply changes the parts of the rule that have a flag.
func (e *trafficEdit) apply(t *api.TrafficSpec) error {
	for _, part := range e.clear {
		remove, ok := clearable[part]
		switch {
		case !ok:
			return usagef("--clear %s: expected one of %s", part, strings.Join(slices.Sorted(maps.Keys(clearable)), ", "))
		case e.given(part):
			return usagef("--clear %s and --%s contradict each other", part, part)
		}
		remove(t)
	}
	if e.given("serving") {
		switch t.Serving = e.serving; e.serving {
		case "newest":
			t.Serving = ""
		case "":
			return usagef("--serving is empty: expected a version or newest")
		}
	}
	if e.given("transition") {
		t.Transition = e.transition
	}
	for _, share := range []struct {
		flag, value string
		of          **api.VersionShare
	}{{"split", e.split, &t.Split}, {"shadow", e.shadow, &t.Shadow}} {
		if !e.given(share.flag) {
			continue
		}
		parsed, err := parseShare(share.flag, share.value)
		if err != nil {
			return err
		}
		*share.of = parsed
	}
	if err := e.applyRollout(t); err != nil {
		return err
	}
	if err := e.applyVersions(t); err != nil {
		return err
	}
	return e.applyLabels(t)
}

// parseShare reads "4=10": ten percent for version 4.
func parseShare(flag, value string) (*api.VersionShare, error) {
	version, percent, ok := strings.Cut(value, "=")
	p, err := strconv.ParseFloat(strings.TrimSuffix(percent, "%"), 64)
	if !ok || version == "" || err != nil {
		return nil, usagef("--%s %q: expected VERSION=PERCENT, such as 4=10", flag, value)
	}
	return &api.VersionShare{Version: version, Percent: p}, nil
}

func (e *trafficEdit) applyRollout(t *api.TrafficSpec) error {
	of := slices.IndexFunc(rolloutFlags, e.given)
	if !e.given("rollout") {
		if of < 0 {
			return nil
		}
		if t.Rollout == nil {
			return usagef("--%s needs a roll-out: give --rollout VERSION", rolloutFlags[of])
		}
	}
	r := api.RolloutSpec{}
	if t.Rollout != nil {
		r = *t.Rollout
	}
	if e.given("rollout") {
		r.Version = e.rollout
	}
	if e.given("policy") && e.policy != r.Policy.Name {
		r.Policy = api.PolicySpec{Name: e.policy}
	}
	if e.given("min-feedback") {
		r.Guard.MinFeedback = e.minFeedback
	}
	if e.given("max-error-increase") {
		r.Guard.MaxErrorIncrease = e.maxErrorIncrease
	}
	if e.given("max-p99-increase") {
		r.Guard.MaxP99Increase = e.maxP99Increase
	}
	for i, zero := range []bool{e.policy == "", e.minFeedback == 0, e.maxErrorIncrease == 0, e.maxP99Increase == 0} {
		if zero {
			return usagef("--%s is empty: leave the flag out for the default", rolloutFlags[i])
		}
	}
	t.Rollout = &r
	return nil
}

func (e *trafficEdit) applyVersions(t *api.TrafficSpec) error {
	var given []string
	for _, flag := range []string{"latest", "all", "specific"} {
		if e.given(flag) {
			given = append(given, "--"+flag)
		}
	}
	switch {
	case len(given) == 0:
		return nil
	case len(given) > 1:
		return usagef("%s contradict each other: expected one of them", strings.Join(given, " and "))
	case e.given("latest") && e.latest == 0, e.given("all") && !e.all, e.given("specific") && len(e.specific) == 0:
		return usagef("%s names no version: --clear versions leaves the choice to the model's source", given[0])
	}
	t.Versions = api.VersionPolicy{Latest: e.latest, All: e.all, Specific: e.specific}
	return nil
}

func (e *trafficEdit) applyLabels(t *api.TrafficSpec) error {
	if len(e.labels) == 0 {
		return nil
	}
	if t.Labels = maps.Clone(t.Labels); t.Labels == nil {
		t.Labels = map[string]string{}
	}
	for _, given := range e.labels {
		label, version, ok := strings.Cut(given, "=")
		if !ok || label == "" {
			return usagef("--label %q: expected LABEL=VERSION, such as canary=4, or LABEL= to remove it", given)
		}
		if t.Labels[label] = version; version == "" {
			delete(t.Labels, label)
		}
	}
	if len(t.Labels) == 0 {
		t.Labels = nil
	}
	return nil
}

// traffic gets the rules of all models that have one, or the traffic of one model.
func (c *cli) traffic(ctx context.Context, model string) ([]api.TrafficStatus, error) {
	var list api.TrafficList
	err := c.list(ctx, "/v1/traffic", "model", model, &list)
	slices.SortStableFunc(list.Traffic, func(a, b api.TrafficStatus) int { return strings.Compare(a.Spec.Model, b.Spec.Model) })
	return list.Traffic, err
}

// trafficOf gets the traffic of one model.
func (c *cli) trafficOf(ctx context.Context, model string) (*api.TrafficStatus, error) {
	all, err := c.traffic(ctx, model)
	if err == nil && len(all) != 1 {
		err = c.notUnderstood(fmt.Errorf("it has %d traffic rules of model %s, expected one", len(all), model))
	}
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

func (c *cli) changeTraffic(ctx context.Context, model, format string, e *trafficEdit) error {
	return c.edit(ctx, format, func() (*manifest.Set, uint64, error) {
		now, err := c.trafficOf(ctx, model)
		if err != nil {
			return nil, 0, err
		}
		spec := now.Spec
		spec.Model = model
		if err := e.apply(&spec); err != nil {
			return nil, 0, err
		}
		// The gateway validates it too. Here the errors are about what was typed.
		if spec = spec.WithDefaults(); spec.Validate() != nil {
			return nil, 0, usageError{spec.Validate()}
		}
		return &manifest.Set{Traffic: []api.TrafficSpec{spec}}, now.Revision, nil
	})
}

func (c *cli) showTraffic(ctx context.Context, model, format string) error {
	t, err := c.trafficOf(ctx, model)
	if err != nil {
		return err
	}
	if format != formatTable {
		return c.printJSON(format, t)
	}
	var versions []api.ModelStatus
	if len(t.Arms) > 1 {
		if versions, err = c.models(ctx, model); err != nil {
			return err
		}
	}
	return c.page(func(p *page) error {
		p.field(0, "Model", model)
		p.traffic(0, t)
		p.arms(t, versions)
		return nil
	})
}

func (c *cli) listTraffic(ctx context.Context, model string) (*listing, error) {
	all, err := c.traffic(ctx, model)
	if err != nil {
		return nil, err
	}
	set := &manifest.Set{}
	for i := range all {
		set.Traffic = append(set.Traffic, all[i].Spec)
	}
	return &listing{
		what: "traffic rules", head: "MODEL\tSERVING\tRULE\tVERSIONS\tLABELS", rows: len(all), set: set, status: func(i int) any { return &all[i] },
		write: func(w io.Writer) {
			for i := range all {
				t := &all[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Spec.Model, orDash(t.Serving), orDash(strings.Join(rules(&t.Spec), "; ")),
					orDash(versionsText(t.Spec.Versions)), orDash(labelsText(t.Spec.Labels)))
			}
		},
	}, nil
}
