package api

import (
	"fmt"
	"strings"
	"time"
)

// ReplicaBounds says how many replicas a model version has: between Min and Max, as many as its queries need. With Min
// 0 a model goes to sleep after Idle without queries, and the next query wakes it.
type ReplicaBounds struct {
	Min int `json:"min"`
	Max int `json:"max" field:"min=1"`
	// Initial is the number of replicas that the version is loaded with. 0 means Min.
	Initial int `json:"initial,omitempty"`
	// Idle is how long a model with Min 0 keeps its last replica without a query.
	Idle time.Duration `json:"idle,omitempty" field:"positive"`
	// Window is how far back the autoscaler looks at demand. It looks for bursts in a tenth of it (the "panic window").
	Window time.Duration `json:"window,omitempty" field:"positive"`
	// Delay is how long demand must stay lower before a replica is stopped.
	Delay time.Duration `json:"delay,omitempty" field:"positive"`
	// Utilization is the part of a replica's capacity within the objective that the autoscaler plans with, more than 0
	// and at most 1, for up to four replicas. More replicas together need less reserve: see package autoscale.
	Utilization float64 `json:"utilization,omitempty" field:"positive"`
	// Up is the factor by which the ready replicas may grow in one step. 1/Down is the part of the ready replicas that
	// a step must leave.
	Up   float64 `json:"up,omitempty" field:"positive"`
	Down float64 `json:"down,omitempty" field:"positive"`
}

// Defaults and limits of ReplicaBounds.
const (
	// DefaultIdle keeps a model that is asked every few minutes loaded. One that is asked twice a day costs nothing
	// most of the time.
	DefaultIdle = 5 * time.Minute
	// DefaultScaleWindow is the window of Knative's autoscaler, which operators know.
	DefaultScaleWindow = time.Minute
	// DefaultScaleDelay: restarting a replica costs more than letting it idle for that long.
	DefaultScaleDelay = 30 * time.Second
	// DefaultUtilization leaves room for bursts.
	DefaultUtilization = 0.7
	DefaultScaleUp     = 10
	DefaultScaleDown   = 2

	MaxIdle        = 30 * 24 * time.Hour //xebec:limit longest `replicas.idle`
	MinScaleWindow = time.Second         //xebec:limit shortest `replicas.window`
	MaxScaleWindow = time.Hour           //xebec:limit longest `replicas.window` and `replicas.delay`
	MaxScaleFactor = 1000                //xebec:limit `replicas.up` and `replicas.down`
)

func (r ReplicaBounds) withDefaults() ReplicaBounds {
	switch {
	case r.Min == 0 && r.Max == 0:
		r.Min, r.Max = 1, 1
	case r.Max == 0:
		r.Max = r.Min
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&r.Idle, DefaultIdle)
	def(&r.Window, DefaultScaleWindow)
	def(&r.Delay, DefaultScaleDelay)
	if r.Utilization == 0 {
		r.Utilization = DefaultUtilization
	}
	if r.Up == 0 {
		r.Up = DefaultScaleUp
	}
	if r.Down == 0 {
		r.Down = DefaultScaleDown
	}
	return r
}

// Scales reports whether the autoscaler decides the number of replicas.
func (r *ReplicaBounds) Scales() bool { return r.Min < r.Max || r.Min == 0 }

// First is the number of replicas that a version is loaded with.
func (r *ReplicaBounds) First() int { return max(r.Min, r.Initial) }

func (r *ReplicaBounds) validate(e *FieldErrors) {
	if r.Min < 0 || r.Min > MaxReplicas {
		e.add("replicas.min", "%d: expected 0 to %d", r.Min, MaxReplicas)
	}
	if r.Max < 1 || r.Max > MaxReplicas {
		e.add("replicas.max", "%d: expected 1 to %d", r.Max, MaxReplicas)
	} else if r.Min > r.Max {
		e.add("replicas.min", "%d is more than replicas.max, %d", r.Min, r.Max)
	}
	if r.Initial != 0 && (r.Initial < r.Min || r.Initial > r.Max) {
		e.add("replicas.initial", "%d: expected replicas.min, %d, to replicas.max, %d", r.Initial, r.Min, r.Max)
	}
	if r.Idle <= 0 || r.Idle > MaxIdle {
		e.add("replicas.idle", "%s: expected more than 0 and at most %s", r.Idle, MaxIdle)
	}
	if r.Window < MinScaleWindow || r.Window > MaxScaleWindow {
		e.add("replicas.window", "%s: expected %s to %s", r.Window, MinScaleWindow, MaxScaleWindow)
	}
	if r.Delay <= 0 || r.Delay > MaxScaleWindow {
		e.add("replicas.delay", "%s: expected more than 0 and at most %s", r.Delay, MaxScaleWindow)
	}
	checkNumber(e, "replicas.utilization", r.Utilization, 0.05, 1, "the part of a replica's capacity that is planned with")
	checkNumber(e, "replicas.up", r.Up, 1, MaxScaleFactor, "how many times the ready replicas may be asked for at once")
	checkNumber(e, "replicas.down", r.Down, 1, MaxScaleFactor, "the replicas that may be left at once are the ready ones by this")
}

// ResourceSpec is what one replica needs of a node. Planning starts with the declared values and replaces them by
// measured ones.
type ResourceSpec struct {
	// CPU is in cores: 0.5 is half a core. MemoryBytes is what a loaded replica holds.
	CPU         float64 `json:"cpu,omitempty"`
	MemoryBytes int64   `json:"memory,omitempty" field:"bytes"`
	// GPU is the number of whole GPUs that it gets exclusively. A model with a Device shares that device in turns and
	// must have 0 here.
	GPU int `json:"gpu,omitempty"`
}

// LimitSpec is the most that one replica may use; 0 means no limit. If a limit cannot be enforced, the model's
// description says so.
type LimitSpec struct {
	CPU         float64 `json:"cpu,omitempty" field:"positive"`
	MemoryBytes int64   `json:"memory,omitempty" field:"bytes"`
	// PIDs is the number of processes and threads.
	PIDs int `json:"pids,omitempty" field:"min=1"`
}

// Limits of ResourceSpec and LimitSpec. They catch typing errors.
const (
	MaxCPU         = 4096     //xebec:limit cores of a replica and of the node
	MaxMemoryBytes = 64 << 40 //xebec:limit memory of a replica and of the node
	MaxGPU         = 64       //xebec:limit GPUs of a replica
	MaxPIDs        = 1 << 20  //xebec:limit `limits.pids`
	// MinLimitCPU and MinLimitMemoryBytes are the least that an interpreter can start with, MinLimitPIDs the least that
	// a library with threads can.
	MinLimitCPU         = 0.01
	MinLimitMemoryBytes = 16 << 20 //xebec:limit smallest `limits.memory`
	MinLimitPIDs        = 8        //xebec:limit smallest `limits.pids`
)

func (r *ResourceSpec) validate(e *FieldErrors, device string) {
	checkNumber(e, "resources.cpu", r.CPU, 0, MaxCPU, "cores")
	if r.MemoryBytes < 0 || r.MemoryBytes > MaxMemoryBytes {
		e.add("resources.memory", "%d bytes: expected 0 to %d", r.MemoryBytes, int64(MaxMemoryBytes))
	}
	if r.GPU < 0 || r.GPU > MaxGPU {
		e.add("resources.gpu", "%d: expected 0 to %d whole GPUs", r.GPU, MaxGPU)
	}
	if r.GPU > 0 && device != "" {
		e.add("resources.gpu", "the model shares the device %s in turns: it cannot have GPUs for itself too", device)
	}
}

func (l *LimitSpec) validate(e *FieldErrors, r *ResourceSpec) {
	if l.CPU != 0 {
		checkNumber(e, "limits.cpu", l.CPU, MinLimitCPU, MaxCPU, "cores")
	}
	if l.MemoryBytes != 0 && (l.MemoryBytes < MinLimitMemoryBytes || l.MemoryBytes > MaxMemoryBytes) {
		e.add("limits.memory", "%d bytes: expected %d to %d, 0 for no limit", l.MemoryBytes, int64(MinLimitMemoryBytes), int64(MaxMemoryBytes))
	}
	if l.PIDs != 0 && (l.PIDs < MinLimitPIDs || l.PIDs > MaxPIDs) {
		e.add("limits.pids", "%d: expected %d to %d processes and threads, 0 for no limit", l.PIDs, MinLimitPIDs, MaxPIDs)
	}
	if l.CPU > 0 && r.CPU > l.CPU {
		e.add("resources.cpu", "%g is more than limits.cpu, %g", r.CPU, l.CPU)
	}
	if l.MemoryBytes > 0 && r.MemoryBytes > l.MemoryBytes {
		e.add("resources.memory", "%d bytes are more than limits.memory, %d", r.MemoryBytes, l.MemoryBytes)
	}
}

// ExpectSpec is an operator's hint: from From to To the model gets Rate queries per second, and the replicas for them
// are started before.
type ExpectSpec struct {
	Rate float64 `json:"rate" field:"positive"`
	// From and To are both times of day, "08:00" in the gateway's time zone, every day, or both RFC 3339 times. A time
	// of day To before From is on the next day.
	From string `json:"from" field:"moment"`
	To   string `json:"to" field:"moment"`
}

// MaxExpect bounds a model's hints, MaxExpectRate the rate of one.
const (
	MaxExpect     = 16  //xebec:limit `expect` hints of a version
	MaxExpectRate = 1e9 //xebec:limit queries per second of an `expect` hint
)

// timeOfDay parses "08:00" as minutes since midnight. It returns -1 for anything else.
func timeOfDay(s string) int {
	t, err := time.Parse("15:04", s)
	if err != nil || len(s) != len("15:04") {
		return -1
	}
	return t.Hour()*60 + t.Minute()
}

// At reports whether the hint holds at now, in now's time zone.
func (x *ExpectSpec) At(now time.Time) bool {
	if from, to := timeOfDay(x.From), timeOfDay(x.To); from >= 0 && to >= 0 {
		at := now.Hour()*60 + now.Minute()
		if from <= to {
			return at >= from && at < to
		}
		return at >= from || at < to
	}
	from, err1 := time.Parse(time.RFC3339, x.From)
	to, err2 := time.Parse(time.RFC3339, x.To)
	return err1 == nil && err2 == nil && !now.Before(from) && now.Before(to)
}

// During reports whether the hint holds at any time from begin to end, both included, in begin's time zone.
func (x *ExpectSpec) During(begin, end time.Time) bool {
	if end.Before(begin) {
		return false
	}
	from := timeOfDay(x.From)
	if from < 0 || timeOfDay(x.To) < 0 {
		first, err1 := time.Parse(time.RFC3339, x.From)
		last, err2 := time.Parse(time.RFC3339, x.To)
		return err1 == nil && err2 == nil && first.Before(last) && !end.Before(first) && begin.Before(last)
	}
	// If it does not hold at begin, it can start to hold when the clock next shows From, or when the clock is set
	// forward or back into the interval.
	for !x.At(begin) {
		hour, minute, second := begin.Clock()
		passed := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second + time.Duration(begin.Nanosecond())
		next := begin.Add((time.Duration(from)*time.Minute - passed + 24*time.Hour) % (24 * time.Hour))
		if _, changed := begin.ZoneBounds(); !changed.IsZero() && !next.Before(changed) {
			next = changed
		}
		if next.After(end) {
			return false
		}
		begin = next
	}
	return true
}

// String formats the hint for people: "400/s from 08:00 to 18:30".
func (x *ExpectSpec) String() string {
	return fmt.Sprintf("%.4g/s from %s to %s", x.Rate, x.From, x.To)
}

func (x *ExpectSpec) validate(e *FieldErrors, at string) {
	checkNumber(e, at+".rate", x.Rate, 1e-6, MaxExpectRate, "queries per second")
	from, to := timeOfDay(x.From), timeOfDay(x.To)
	first, err1 := time.Parse(time.RFC3339, x.From)
	last, err2 := time.Parse(time.RFC3339, x.To)
	const endOfDay = `%q: the end of a day is "00:00"`
	switch {
	case x.From == "24:00":
		e.add(at+".from", endOfDay, x.From)
	case from < 0 && err1 != nil:
		e.add(at+".from", `%q: expected two times of day, "08:00" and "18:30", or two moments, "2026-01-31T08:00:00Z"`, x.From)
	case from >= 0 && x.To == "24:00":
		e.add(at+".to", endOfDay, x.To)
	case from >= 0 && to < 0:
		e.add(at+".to", `%q: expected a time of day as from is, such as "18:30"`, x.To)
	case from >= 0 && from == to:
		e.add(at+".to", "%q is also from: expected another time of day", x.To)
	case from < 0 && err2 != nil:
		e.add(at+".to", `%q: expected a moment as from is, such as "2026-01-31T18:30:00Z"`, x.To)
	case from < 0 && !first.Before(last):
		e.add(at+".to", "%s is not after from, %s", x.To, x.From)
	}
}

func validateExpect(e *FieldErrors, hints []ExpectSpec) {
	if len(hints) > MaxExpect {
		e.add("expect", "has %d hints: expected at most %d", len(hints), MaxExpect)
		return
	}
	for i := range hints {
		hints[i].validate(e, fmt.Sprintf("expect[%d]", i))
	}
}

// MaxPreload bounds the modules that a zygote imports for a model.
const MaxPreload = 64 //xebec:limit preloaded modules of a version

func validatePreload(e *FieldErrors, modules []string, run *RunSpec) {
	if len(modules) == 0 {
		return
	}
	if len(modules) > MaxPreload {
		e.add("preload", "has %d modules: expected at most %d", len(modules), MaxPreload)
		return
	}
	for i, m := range modules {
		if !moduleName(m) {
			e.add(fmt.Sprintf("preload[%d]", i), "%q is not the name of a Python module: expected one such as numpy or sklearn.svm", m)
		}
	}
	switch {
	case len(run.Command) > 0 && run.Command[0] != "python" && run.Command[0] != "python3":
		e.add("preload", "is for commands that begin with python, not %q: a process that has imported the modules runs the rest of the command", run.Command[0])
	case len(run.Command) == 1 || len(run.Command) > 1 && strings.HasPrefix(run.Command[1], "-") && run.Command[1] != "-m":
		e.add("preload", "expected a command [python, FILE, …] or [python, -m, MODULE, …]: options of the interpreter cannot be given to one that runs already")
	}
}

func moduleName(s string) bool {
	if s == "" || len(s) > MaxTensorNameBytes {
		return false
	}
	for _, part := range strings.Split(s, ".") {
		if !envName(part) {
			return false
		}
	}
	return true
}
