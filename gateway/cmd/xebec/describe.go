package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

func (c *cli) describeCommand() *cobra.Command {
	var (
		format  string
		secrets bool
	)
	cmd := &cobra.Command{
		Use:   "describe model NAME[@VERSION], describe function NAME, or describe gateway|scheduler",
		Short: "Show the status of a model, a function, the gateway or the scheduler's plan, with reasons",
		Long: `Show the status of a model, a function, the gateway or the scheduler's plan, with reasons.

For a model: the stage of each version's life, or of the named one's, and the reason, the result of its validation, how far queries and
answers have drifted from the validated ones, and how queries are divided between the versions.

For a function: what its policy has learned about each candidate, over all contexts and for some of those in memory: the share of the
queries that it gets, the weight of its answer, the number of losses and their mean.

For the scheduler: the plan of the last epoch ("xebec serve --epoch"): which models evaluate each function's queries, how their batches are
formed, and how models take turns on a shared device. Each choice comes with its reason.`,
		Example: `  xebec describe model digits-svm
  xebec describe model digits-svm@2
  xebec describe function digits -o json
  xebec describe scheduler`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && (strings.EqualFold(args[0], "gateway") || strings.EqualFold(args[0], "scheduler")):
				return nil
			case len(args) == 2:
				if kind, ok := kindArgument(args[0]); ok && kind != api.KindTraffic {
					return nil
				}
			}
			return usagef("nothing to describe: expected model NAME, model NAME@VERSION, function NAME, gateway or scheduler")
		},
		ValidArgsFunction: c.completeKindAndName("model", "function", "gateway", "scheduler"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/v1/describe/gateway"
			show := showGateway
			if strings.EqualFold(args[0], "scheduler") {
				path, show = "/v1/describe/scheduler", showScheduler
			}
			if kind, ok := kindArgument(args[0]); ok {
				if kind == api.KindModel {
					return c.describeModel(cmd.Context(), args[1], format, secrets)
				}
				if err := api.CheckName("function", args[1]); err != nil {
					return usageError{err}
				}
				path, show = withSecrets("/v1/describe/function/"+args[1], secrets), showFunction
			} else if secrets {
				return usagef("--show-secrets shows environments of models: expected describe model NAME or describe function NAME")
			}
			return c.describe(cmd.Context(), path, format, show)
		},
	}
	outputFlag(cmd, &format)
	secretsFlag(cmd, &secrets)
	return cmd
}

// page is a description for people: aligned fields, indented below what they belong to.
type page struct {
	c *cli
	w *tabwriter.Writer
}

func (c *cli) describe(ctx context.Context, path, format string, show func(*page, []byte) error) error {
	var answer []byte
	if err := c.call(ctx, "GET", path, "", nil, &answer); err != nil {
		return err
	}
	if format != formatTable {
		return c.print(format, answer)
	}
	return c.page(func(p *page) error {
		if err := show(p, answer); err != nil {
			return c.notUnderstood(err)
		}
		return nil
	})
}

// page prints what show writes, or nothing if show fails.
func (c *cli) page(show func(*page) error) error {
	var out bytes.Buffer
	p := &page{c: c, w: tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)}
	if err := show(p); err != nil {
		return err
	}
	if err := p.w.Flush(); err != nil {
		return err
	}
	_, err := c.out.Write(out.Bytes())
	return err
}

// field writes a line unless the value is empty.
func (p *page) field(indent int, name, value string) {
	if value != "" {
		fmt.Fprintf(p.w, "%s%s:\t%s\n", strings.Repeat("  ", indent), name, value)
	}
}

// text writes lines below a name.
func (p *page) text(indent int, name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.flush() // columns do not extend across free text
	fmt.Fprintf(p.w, "%s%s:\n", strings.Repeat("  ", indent), name)
	for _, line := range lines {
		fmt.Fprintf(p.w, "%s%s\n", strings.Repeat("  ", indent+1), p.c.clean(strings.ReplaceAll(line, "\t", "    ")))
	}
	p.flush()
}

// flush ends the present columns. Writing to memory does not fail.
func (p *page) flush() { _ = p.w.Flush() }

func (p *page) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.Format(time.RFC3339), p.c.age(t))
}

func (p *page) conditions(indent int, all []api.Condition) {
	lines := make([]string, 0, len(all))
	for _, cond := range all {
		line := fmt.Sprintf("%s is %s", cond.Type, cond.Status)
		if cond.Reason != "" {
			line += ", " + cond.Reason
		}
		if cond.Message != "" {
			line += ": " + cond.Message
		}
		lines = append(lines, line)
	}
	p.text(indent, "Conditions", lines)
}

func (p *page) queries(indent int, byCode map[string]uint64) {
	p.field(indent, "Queries", countsText(byCode))
}

// describeModel describes a model, or the one version that ref names.
func (c *cli) describeModel(ctx context.Context, ref, format string, secrets bool) error {
	id, err := api.ParseModelRef(ref)
	if err != nil {
		return usageError{err}
	}
	path := withSecrets("/v1/describe/model/"+id.Name, secrets)
	if id.Version == "" {
		return c.describe(ctx, path, format, showModel)
	}
	var d api.ModelDescription
	if err := c.get(ctx, path, &d); err != nil {
		return err
	}
	all := d.Models
	if err := onlyVersion(&d, id); err != nil {
		return err
	}
	if format != formatTable {
		return c.printJSON(format, d)
	}
	return c.page(func(p *page) error { p.modelDescription(&d, all); return nil })
}

// onlyVersion leaves one version of a model in its description, with the functions that may ask that version. What divides the queries between
// the versions stays: it is about all of them.
func onlyVersion(d *api.ModelDescription, id api.ModelID) error {
	m := findVersion(d.Models, id)
	if m == nil {
		sortVersions(d.Models)
		has := make([]string, len(d.Models))
		for i := range d.Models {
			has[i] = d.Models[i].Spec.ID().String()
		}
		return &remoteError{ErrorInfo: api.ErrorInfo{
			Code: api.NotFound.String(), Message: fmt.Sprintf("there is no model %s: expected one of %s", id, strings.Join(has, ", ")),
		}}
	}
	d.Models = []api.ModelStatus{*m}
	d.Functions = slices.DeleteFunc(d.Functions, func(f api.FunctionStatus) bool {
		refs := f.Spec.Refs()
		return !slices.Contains(refs, id.Name) && !slices.Contains(refs, id.String())
	})
	return nil
}

func sortVersions(all []api.ModelStatus) {
	slices.SortStableFunc(all, func(a, b api.ModelStatus) int { return api.CompareVersions(a.Spec.Version, b.Spec.Version) })
}

func showModel(p *page, answer []byte) error {
	var d api.ModelDescription
	if err := json.Unmarshal(answer, &d); err != nil {
		return err
	}
	sortVersions(d.Models)
	p.modelDescription(&d, d.Models)
	return nil
}

// modelDescription writes a description, whose shares depend on all versions of the model.
func (p *page) modelDescription(d *api.ModelDescription, all []api.ModelStatus) {
	for i := range d.Models {
		if i > 0 {
			p.flush()
			fmt.Fprintln(p.w)
		}
		p.model(&d.Models[i])
	}
	names := make([]string, len(d.Functions))
	for i := range d.Functions {
		names[i] = d.Functions[i].Spec.Name
	}
	p.field(0, "Functions", strings.Join(names, ", "))
	if d.Traffic != nil {
		p.flush()
		fmt.Fprintln(p.w, "\nTraffic:")
		p.traffic(1, d.Traffic)
		p.arms(d.Traffic, all)
	}
}

func (p *page) model(m *api.ModelStatus) {
	p.field(0, "Model", m.Spec.ID().String())
	p.lifecycle(&m.Version)
	p.field(0, "State", fmt.Sprintf("%s, %s", m.State, readyOf(m)))
	serving := yesNo(m.Serving)
	if !m.Serving && m.ServingVersion != "" {
		serving += ", version " + m.ServingVersion + " is"
	}
	p.field(0, "Serving", serving)
	p.field(0, "Created", cmp.Or(p.since(m.Created), "unknown"))
	p.field(0, "Directory", m.Dir)
	p.field(0, "Digest", m.Spec.Digest)
	p.field(0, "Interpreter", m.Spec.Interpreter)
	p.field(0, "Image", m.Spec.Run.Image)
	p.field(0, "Image digest", m.Spec.ImageDigest)
	p.field(0, "Command", strings.Join(m.Spec.Run.Command, " "))
	p.environment(m.Spec.Run.Env)
	p.capacity(m)
	p.measured(m.Measured)
	p.field(0, "Inputs", tensors(m.Spec.Inputs))
	p.field(0, "Outputs", tensors(m.Spec.Outputs))
	b := m.Spec.Batching
	batching := fmt.Sprintf("%s, at most %s and %s, hold %s", b.Policy, numerals.Count(b.Max, "query"), numerals.Count(b.MaxBytes, "byte"), b.Hold)
	if m.ObjectiveMicros > 0 {
		batching += ", objective " + micros(m.ObjectiveMicros)
	}
	p.field(0, "Batching", batching)
	if m.Spec.Cost > 0 {
		p.field(0, "Cost", numerals.Short(m.Spec.Cost)+" a query")
	}
	p.field(0, "Device", m.Spec.Device)
	p.busyPoll(m.BusyPoll)
	p.cache(m)
	p.field(0, "Queue", fmt.Sprintf("%d of at most %s", m.QueueDepth, numerals.Count(m.Spec.Queue.Max, "query")))
	p.queries(0, m.Queries)
	p.conditions(0, m.Conditions)
	for i := range m.Replicas {
		p.replica(&m.Replicas[i])
	}
	lines := make([]string, len(m.Logs))
	for i, line := range m.Logs {
		lines[i] = line.String()
	}
	p.text(0, "Last output", lines)
}

// environment writes a line for each variable of a model.
func (p *page) environment(env map[string]api.EnvValue) {
	lines := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch v := env[name]; {
		case v.Masked:
			lines = append(lines, name+", masked")
		case v.File != "":
			lines = append(lines, name+" from the file "+v.File)
		default:
			lines = append(lines, name+"="+v.Value)
		}
	}
	p.text(0, "Environment", lines)
}

func (p *page) replica(r *api.ReplicaStatus) {
	p.flush()
	fmt.Fprintf(p.w, "Replica %d:\n", r.ID)
	p.field(1, "State", string(r.State)+" since "+p.since(r.Since))
	p.field(1, "Next attempt", attempt(r.NextAttempt))
	p.field(1, "Process", strings.TrimPrefix(fmt.Sprintf("%s, %s", pid(r.PID), numerals.Count(r.Restarts, "restart")), "-, "))
	binding := r.Binding
	if binding != "" {
		transport := "descriptors through the socket"
		if r.Ring {
			transport = "descriptors through shared memory"
		}
		binding += ", " + transport
	}
	p.field(1, "Binding", binding)
	p.field(1, "Isolation", strings.Join(r.Isolation, "; "))
	p.text(1, "Not isolated", r.NotIsolated)
	why := ""
	if r.CapWhy != "" {
		why = " (" + r.CapWhy + ")"
	}
	if r.Concurrency > 1 {
		p.field(1, "Concurrency", fmt.Sprintf("evaluates up to %s at once", numerals.Count(r.Concurrency, "batch")))
	}
	p.field(1, "Served", fmt.Sprintf("%s in %s; cap %d%s, %s outstanding",
		numerals.Count(r.Queries, "query"), numerals.Count(r.Batches, "batch"), r.Cap, why, numerals.Count(r.Outstanding, "query")))
	if r.Profile.Samples > 0 {
		p.field(1, "Evaluation", fmt.Sprintf("mean %s, P99 %s over %s", micros(r.Profile.MeanMicros), micros(r.Profile.P99Micros), numerals.Count(r.Profile.Samples, "batch")))
	}
	p.field(1, "Last exit", r.LastExit)
	if r.LastError != "" {
		name := "Last error"
		if !r.LastErrorAt.IsZero() {
			name += ", " + p.since(r.LastErrorAt)
		}
		p.text(1, name, strings.Split(strings.TrimRight(r.LastError, "\n"), "\n"))
	}
}

func showFunction(p *page, answer []byte) error {
	var d api.FunctionDescription
	if err := json.Unmarshal(answer, &d); err != nil {
		return err
	}
	f := &d.Function
	p.field(0, "Function", f.Spec.Name)
	p.field(0, "Ready", yesNo(f.Ready))
	p.field(0, "Created", cmp.Or(p.since(f.Created), "unknown"))
	p.field(0, "Models", strings.Join(f.Spec.Models, ", "))
	p.field(0, "SLO", f.Spec.SLO.String())
	if f.Spec.ColdStart > 0 {
		p.field(0, "Cold start", f.Spec.ColdStart.String())
	}
	p.declared(&f.Spec)
	if f.Spec.Weight != api.DefaultWeight && f.Spec.Weight > 0 {
		p.field(0, "Weight", numerals.Short(f.Spec.Weight))
	}
	if f.Spec.Budget > 0 {
		p.field(0, "Budget", numerals.Short(f.Spec.Budget)+" per second")
	}
	output := string(f.Spec.Default)
	if output == "" {
		output = "none: a query without a prediction is an error"
	}
	p.field(0, "Default", output)
	p.queries(0, f.Queries)
	p.field(0, "Defaults given", fmt.Sprint(f.Defaults))
	p.learning(f.Policy)
	p.shadow(f.Shadow)
	p.conditions(0, f.Conditions)
	for i := range d.Models {
		m := &d.Models[i]
		p.field(0, "Answered by", fmt.Sprintf("%s, %s, %s", m.Spec.ID(), m.State, readyOf(m)))
	}
	p.learned(f.Policy)
	return nil
}

func showGateway(p *page, answer []byte) error {
	var g api.GatewayStatus
	if err := json.Unmarshal(answer, &g); err != nil {
		return err
	}
	p.field(0, "Version", g.Version+" ("+g.GoVersion+")")
	p.field(0, "Process", fmt.Sprint(g.PID))
	p.field(0, "Started", p.since(g.Started))
	p.field(0, "Functions at", g.Listen)
	if g.GRPC != "" {
		p.field(0, "gRPC at", g.GRPC)
	}
	p.field(0, "Admin at", g.Admin)
	p.field(0, "Data in", g.DataDir)
	ready := yesNo(g.Ready)
	if g.Draining {
		ready += ", stopping"
	}
	p.field(0, "Ready", ready)
	p.upgrade(g.Upgrade)
	p.field(0, "Has", strings.Join([]string{numerals.Count(g.Models, "model"), numerals.Count(g.Functions, "function"), numerals.Count(g.Replicas, "replica")}, ", "))
	p.node(g.Node)
	p.busyPoll(g.BusyPoll)
	p.field(0, "In flight", numerals.Count(g.Inflight, "query"))
	p.caches(g.Cache)
	p.store("Store", g.Store)
	if g.Revision > 0 {
		p.field(0, "Declared", fmt.Sprintf("revision %d of the store", g.Revision))
	}
	p.sources(g.Sources)
	p.conditions(0, g.Conditions)
	return nil
}

// upgrade describes an upgrade that is under way; nil: there is none.
func (p *page) upgrade(u *api.UpgradeStatus) {
	if u == nil {
		return
	}
	peer := "new"
	if u.Role != api.UpgradeOld {
		peer = "old"
	}
	p.field(0, "Upgrade", fmt.Sprintf("%s, since %s; this is the %s process, the %s one is %d", u.Step, p.since(u.Since), u.Role, peer, u.Peer))
	if u.Share > 0 {
		p.field(1, "Canary", fmt.Sprintf("has %g%% of the new connections", u.Share*100))
	}
	p.field(1, "Waits for", strings.Join(u.Awaited, ", "))
}

// busyPoll says whether a process spins before it sleeps; nil: it is not to.
func (p *page) busyPoll(b *api.BusyPollStatus) {
	if b == nil {
		return
	}
	text := fmt.Sprintf("at most %s before it sleeps, while it expects work", micros(b.Micros))
	if b.Off != "" {
		text = fmt.Sprintf("off: %s (%s configured)", b.Off, micros(b.Micros))
	}
	p.field(0, "Busy polling", text)
}

// attempt is when the next process will start.
func attempt(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

func tensors(specs []api.TensorSpec) string {
	all := make([]string, len(specs))
	for i, t := range specs {
		all[i] = t.Name + " " + t.String()
		if t.Media != "" {
			all[i] += " " + t.Media
		}
	}
	return strings.Join(all, ", ")
}
