package api

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ModelSpec declares one version of a model: what it takes and returns, how its worker is started, and how the gateway
// treats it. A spec is immutable once it is declared, as its version is.
//
// The zero value of a field means its default; [ModelSpec.WithDefaults] writes the defaults out and [ModelSpec.Validate]
// judges the result. The manifest package reads and writes the YAML form.
type ModelSpec struct {
	Name    string
	Version string
	// Inputs and Outputs are the signature, of one query; the batch dimension is never part of a shape.
	Inputs  []TensorSpec
	Outputs []TensorSpec
	Run     RunSpec
	// Python is the virtual environment whose interpreter "python" means in the command; relative to Dir. Empty: the
	// gateway's own.
	Python string
	// Preload has the modules that a zygote of that environment has imported before the worker is forked from it; empty: each worker is an
	// interpreter that starts from nothing.
	Preload  []string
	Replicas ReplicaBounds
	// Resources is what a replica takes, Limits what it may take at most.
	Resources ResourceSpec
	Limits    LimitSpec
	// Expect are hints of what is to come.
	Expect   []ExpectSpec
	Batching BatchingSpec
	// Retry says whether a query that a dead replica had begun may be tried once more; nil means true.
	Retry *bool
	// Timeout is how long a replica may work on one batch before it can be taken for hung. A replica is given up after
	// max(10 × its P99, Timeout, 1 s).
	Timeout time.Duration
	Queue   QueueSpec
	// Cache is CacheOn, or CacheOff for a model whose outputs are not a function of its inputs alone.
	Cache string
	// Cost is what the evaluation of one query costs, in a unit of the operator's choosing; the budgets of functions are in
	// the same one. 0: nothing.
	Cost float64
	// Device names a device that the model's replicas share with other models, so that they take turns on it; empty: none.
	// Which devices there are is known to the gateway, not here.
	Device string
	// Warmup and Validation are what a replica, and a version, must have done before it gets traffic; nil: nothing.
	Warmup     *WarmupSpec
	Validation *ValidateSpec // "validate" in a manifest
	// Dir is the directory that relative paths of the spec mean and in which the worker starts. A manifest that does not say
	// it means the directory that it lies in, and one that says a relative path means that it is relative to there: the
	// manifest package knows.
	Dir string
}

// RunSpec says how a worker is started.
type RunSpec struct {
	// Command is the program and its arguments, never passed through a shell. With an Image it takes the place of the image's own
	// command, and may be missing.
	Command []string
	// Image is a container image; empty: the command runs as a process of the gateway's host.
	Image string
	// Env is added to the worker's environment.
	Env map[string]string
}

// BatchingSpec says how queries are put together.
type BatchingSpec struct {
	// Policy is BatchAIMD, BatchQuantile, BatchFixed or BatchNone.
	Policy string
	// Max is the largest number of queries in a batch; for BatchFixed it is the size of a batch.
	Max int
	// MaxBytes is the largest number of input bytes in a batch.
	MaxBytes int64
	// Hold is how long a batch that is not full may wait for more queries.
	Hold time.Duration
	// Objective is the evaluation time of a batch that BatchAIMD and BatchQuantile aim at; 0 means two fifths of the smallest SLO
	// among the model's functions.
	Objective time.Duration
	// Pad fills a fixed batch with copies of its last query, for models compiled for one batch size.
	Pad bool
}

// QueueSpec bounds the queue of a model version.
type QueueSpec struct {
	// Max is the largest number of queries that may wait.
	Max int
}

// The batching policies.
const (
	// BatchAIMD raises the largest batch by a little while the objective is met, and lowers it by a part when it is missed.
	BatchAIMD = "aimd"
	// BatchQuantile takes the largest batch from a regression of the 99th percentile of evaluation times on batch sizes.
	BatchQuantile = "quantile"
	BatchFixed    = "fixed"
	BatchNone     = "none"
)

// The settings of a model's prediction cache.
const (
	CacheOff = "off"
	CacheOn  = "on"
)

// Defaults of a model's spec.
const (
	DefaultVersion = "1"
	// DefaultBatchMax lets AIMD and quantile regression find their own cap: on the linear models that we measured it settles
	// below this.
	DefaultBatchMax = 4096
	// DefaultBatchBytes takes one request body of the default limit.
	DefaultBatchBytes = 64 << 20
	// DefaultQueueMax is four of the largest default batches.
	DefaultQueueMax = 4 * DefaultBatchMax
	// DefaultModelTimeout is generous: the first batch of a model that compiles itself may take many seconds, and killing it
	// then would start it all over again.
	DefaultModelTimeout = 30 * time.Second
)

// Limits of a model's spec. They exist so that every size that is computed from a spec is known to be sane.
const (
	// MaxTensors is the worker protocol's limit for inputs and for outputs.
	MaxTensors = 64
	// MaxTensorNameBytes keeps the largest signature within one frame of the worker protocol (64 KiB).
	MaxTensorNameBytes = 255
	// MaxReplicas is beyond what one machine runs; it catches slips of the keyboard.
	MaxReplicas = 1024
	// MaxBatch bounds the tables of a batch block: 65,536 entries of 16 bytes are 1 MiB.
	MaxBatch = 65536
	// MaxBatchBytes bounds a segment's slab to a few times this.
	MaxBatchBytes = 4 << 30
	// MaxQueue bounds the memory of a queue that nobody drains.
	MaxQueue = 1 << 20
	// MaxHold is where holding a batch stops being a matter of throughput: a longer one is a mistake in units.
	MaxHold = 100 * time.Millisecond
	// MaxTimeout bounds how long a hung replica can stay.
	MaxTimeout = time.Hour
	// MaxCost leaves room for any unit of money or energy, and keeps sums of costs exact enough to compare.
	MaxCost = 1e9
	// MaxArgs, MaxEnv and MaxRunBytes stay well below the kernel's limits for execve (128 KiB a string, 2 MiB together).
	MaxArgs     = 256
	MaxEnv      = 256
	MaxRunBytes = 64 << 10
	// MaxPathBytes is PATH_MAX.
	MaxPathBytes = 4096
)

// ID names the model version.
func (m *ModelSpec) ID() ModelID { return ModelID{Name: m.Name, Version: m.Version} }

// Signature is what the model takes and returns. It shares the spec's slices.
func (m *ModelSpec) Signature() Signature { return Signature{Inputs: m.Inputs, Outputs: m.Outputs} }

// Fixed names the first field in which another spec of the same version differs that may not: what it takes and returns, and what runs. It
// is empty where the other one only treats the version differently.
func (m *ModelSpec) Fixed(other *ModelSpec) string {
	switch {
	case !sameTensors(m.Inputs, other.Inputs):
		return "inputs"
	case !sameTensors(m.Outputs, other.Outputs):
		return "outputs"
	case !slices.Equal(m.Run.Command, other.Run.Command) || m.Run.Image != other.Run.Image || !maps.Equal(m.Run.Env, other.Run.Env):
		return "run"
	case m.Python != other.Python:
		return "python"
	case m.Device != other.Device:
		return "device"
	case !slices.Equal(m.Preload, other.Preload):
		return "preload"
	case m.Limits != other.Limits:
		return "limits"
	case m.Resources.GPU != other.Resources.GPU:
		return "resources.gpu"
	}
	return ""
}

// SameSignature reports whether the answers of two versions can stand for each other: they take and return the same tensors.
func (m *ModelSpec) SameSignature(other *ModelSpec) bool {
	return sameTensors(m.Inputs, other.Inputs) && sameTensors(m.Outputs, other.Outputs)
}

func sameTensors(a, b []TensorSpec) bool {
	return slices.EqualFunc(a, b, func(x, y TensorSpec) bool {
		return x.Name == y.Name && x.DType == y.DType && slices.Equal(x.Shape, y.Shape)
	})
}

// Retries reports whether a query that a dead replica had begun may be tried once more.
func (m *ModelSpec) Retries() bool { return m.Retry == nil || *m.Retry }

// FixedInputBytes is the number of bytes of one query's inputs of fixed size; inputs of varying size count nothing.
func (m *ModelSpec) FixedInputBytes() int64 {
	var n int64
	for _, t := range m.Inputs {
		n += int64(t.ItemBytes())
	}
	return n
}

// WithDefaults returns a copy in which every field that has a default is set. It changes nothing that is set, and it is
// idempotent. Bounds {0, 0} mean {1, 1}; {0, n} is a model that may sleep; {n, 0} means {n, n}.
func (m ModelSpec) WithDefaults() ModelSpec {
	if m.Version == "" {
		m.Version = DefaultVersion
	}
	m.Replicas = m.Replicas.withDefaults()
	b := &m.Batching
	if b.Policy == "" {
		b.Policy = BatchAIMD
	}
	if b.Max == 0 {
		switch b.Policy {
		case BatchAIMD, BatchQuantile:
			b.Max = DefaultBatchMax
		case BatchNone:
			b.Max = 1
		}
	}
	if b.MaxBytes == 0 {
		b.MaxBytes = DefaultBatchBytes
	}
	if m.Retry == nil {
		yes := true
		m.Retry = &yes
	}
	if m.Timeout == 0 {
		m.Timeout = DefaultModelTimeout
	}
	if m.Queue.Max == 0 {
		m.Queue.Max = DefaultQueueMax
	}
	if m.Cache == "" {
		m.Cache = CacheOn
	}
	m.Warmup, m.Validation = m.Warmup.withDefaults(), m.Validation.withDefaults()
	return m
}

// Validate judges a spec that has its defaults. The error is nil or [FieldErrors] with everything that is wrong.
func (m ModelSpec) Validate() error {
	var e FieldErrors
	e.check("name", CheckName("model", m.Name))
	e.check("version", CheckVersion(m.Version))
	inputs := validateTensors(&e, "inputs", m.Inputs)
	validateTensors(&e, "outputs", m.Outputs)
	m.Run.validate(&e)
	validatePath(&e, "python", m.Python)
	validatePreload(&e, m.Preload, &m.Run)
	m.Replicas.validate(&e)
	m.Resources.validate(&e, m.Device)
	m.Limits.validate(&e, &m.Resources)
	validateExpect(&e, m.Expect)
	m.Batching.validate(&e)
	if inputs && m.Batching.MaxBytes > 0 && m.FixedInputBytes() > m.Batching.MaxBytes {
		e.add("batching.max_bytes", "%d is less than one query's inputs (%d bytes): no batch could hold a query", m.Batching.MaxBytes, m.FixedInputBytes())
	}
	if m.Timeout <= 0 || m.Timeout > MaxTimeout {
		e.add("timeout", "%s: expected more than 0 and at most %s", m.Timeout, MaxTimeout)
	}
	if m.Queue.Max < 1 || m.Queue.Max > MaxQueue {
		e.add("queue.max", "%d: expected 1 to %d queries", m.Queue.Max, MaxQueue)
	}
	if m.Cache != CacheOff && m.Cache != CacheOn {
		e.add("cache", "%q: expected %q or %q", m.Cache, CacheOff, CacheOn)
	}
	checkNumber(&e, "cost", m.Cost, 0, MaxCost, "per evaluated query, 0 for none")
	if m.Device != "" {
		e.check("device", CheckName("device", m.Device))
	}
	m.Warmup.validate(&e)
	m.Validation.validate(&e)
	validatePath(&e, "dir", m.Dir)
	return e.err()
}

// validateTensors reports whether all of them are valid, so that sizes may be computed.
func validateTensors(e *FieldErrors, path string, specs []TensorSpec) bool {
	before := len(*e)
	if len(specs) == 0 {
		e.add(path, "is empty: a model has at least one")
	}
	if len(specs) > MaxTensors {
		e.add(path, "has %d tensors: expected at most %d", len(specs), MaxTensors)
		return false
	}
	var total int64
	seen := make(map[string]int, len(specs))
	for i, t := range specs {
		at := fmt.Sprintf("%s[%d]", path, i)
		if bad := checkTensorName(t.Name); bad != "" {
			e.add(at+".name", "%s", bad)
		} else if first, twice := seen[t.Name]; twice {
			e.add(at+".name", "%q is taken by %s[%d]: names of %s differ", t.Name, path, first, path)
		} else {
			seen[t.Name] = i
		}
		total += validateTensor(e, at, t)
	}
	if len(*e) == before && total > MaxItemBytes {
		e.add(path, "take %d bytes a query together: expected at most %d", total, int64(MaxItemBytes))
	}
	return len(*e) == before
}

func checkTensorName(name string) string {
	switch {
	case name == "":
		return "is empty: every tensor has a name"
	case len(name) > MaxTensorNameBytes:
		return fmt.Sprintf("%.20q… has %d bytes: expected at most %d", name, len(name), MaxTensorNameBytes)
	case !plainText(name):
		return fmt.Sprintf("%q: expected UTF-8 text without control characters", name)
	}
	return ""
}

// validateTensor returns the bytes of one query's data where they are fixed and sane, else 0.
func validateTensor(e *FieldErrors, at string, t TensorSpec) int64 {
	ok := true
	if !t.DType.Valid() {
		e.add(at+".dtype", "is missing or unknown: expected one of %s", dtypeNames())
		ok = false
	}
	if len(t.Shape) > MaxRank {
		e.add(at+".shape", "has %d dimensions: expected at most %d", len(t.Shape), MaxRank)
		return 0
	}
	for i, d := range t.Shape {
		switch {
		case d < -1:
			e.add(fmt.Sprintf("%s.shape[%d]", at, i), "%d is not a dimension: expected -1 (any) or 0 and more", d)
			ok = false
		case d > MaxItemBytes:
			e.add(fmt.Sprintf("%s.shape[%d]", at, i), "%d is too large: expected at most %d", d, int64(MaxItemBytes))
			ok = false
		}
	}
	if !ok || t.DType == Bytes {
		return 0
	}
	// The known dimensions alone must fit, the unknown ones counted as 1.
	n := int64(t.DType.Size())
	for _, d := range t.Shape {
		if d > 0 && n > math.MaxInt64/d {
			n = math.MaxInt64
			break
		}
		if d >= 0 {
			n *= d
		}
	}
	if n > MaxItemBytes {
		e.add(at+".shape", "%s takes more than %d bytes a query, the largest tensor there is", t, int64(MaxItemBytes))
		return 0
	}
	return int64(t.ItemBytes())
}

func (r *RunSpec) validate(e *FieldErrors) {
	switch {
	case r.Image != "":
		e.check("run.image", checkImage(r.Image))
	case len(r.Command) == 0:
		e.add("run.command", "is empty: expected the program that serves the model and its arguments, such as [python, model.py]")
	}
	if len(r.Command) > 0 && r.Command[0] == "" {
		e.add("run.command[0]", "is empty: expected a program")
	}
	if len(r.Command) > MaxArgs {
		e.add("run.command", "has %d arguments: expected at most %d", len(r.Command), MaxArgs)
	}
	total := 0
	for i, arg := range r.Command {
		total += len(arg)
		if !execText(arg) {
			e.add(fmt.Sprintf("run.command[%d]", i), "%q: expected UTF-8 text without NUL", arg)
		}
	}
	if len(r.Env) > MaxEnv {
		e.add("run.env", "has %d variables: expected at most %d", len(r.Env), MaxEnv)
		return
	}
	for _, name := range sortedKeys(r.Env) {
		total += len(name) + len(r.Env[name])
		at := "run.env." + name
		switch {
		case !envName(name):
			e.add("run.env", "%q is not the name of a variable: expected letters, digits and '_', not starting with a digit", name)
		case strings.HasPrefix(name, "XEBEC_"):
			e.add(at, "names that start with XEBEC_ are set by the gateway")
		case !execText(r.Env[name]):
			e.add(at, "the value is not UTF-8 text without NUL")
		}
	}
	if total > MaxRunBytes {
		e.add("run", "command and environment take %d bytes: expected at most %d", total, MaxRunBytes)
	}
}

func (b *BatchingSpec) validate(e *FieldErrors) {
	switch b.Policy {
	case BatchAIMD, BatchQuantile:
	case BatchFixed:
		if b.Max == 0 {
			e.add("batching.max", "is missing: the policy %q needs the size of its batches", BatchFixed)
		}
	case BatchNone:
		if b.Max != 1 {
			e.add("batching.max", "%d: the policy %q has batches of 1", b.Max, BatchNone)
		}
	default:
		e.add("batching.policy", "%q: expected aimd, quantile, fixed or none", b.Policy)
	}
	if b.Max < 0 || b.Max > MaxBatch {
		e.add("batching.max", "%d: expected 1 to %d queries", b.Max, MaxBatch)
	}
	if b.MaxBytes < 1 || b.MaxBytes > MaxBatchBytes {
		e.add("batching.max_bytes", "%d: expected 1 to %d bytes", b.MaxBytes, int64(MaxBatchBytes))
	}
	if b.Hold < 0 || b.Hold > MaxHold {
		e.add("batching.hold", "%s: expected 0 to %s", b.Hold, MaxHold)
	}
	if b.Objective < 0 || b.Objective > MaxTimeout {
		e.add("batching.objective", "%s: expected 0 (two fifths of the smallest SLO) to %s", b.Objective, MaxTimeout)
	} else if b.Objective > 0 && b.Hold >= b.Objective {
		e.add("batching.hold", "%s is not less than batching.objective, %s: every batch would be late", b.Hold, b.Objective)
	}
	if b.Pad && b.Policy != BatchFixed {
		e.add("batching.pad", "is only for the policy %q: other batches have no size to be filled to", BatchFixed)
	}
}

func validatePath(e *FieldErrors, path, s string) {
	switch {
	case len(s) > MaxPathBytes:
		e.add(path, "has %d bytes: expected at most %d", len(s), MaxPathBytes)
	case !execText(s):
		e.add(path, "%q: expected UTF-8 text without NUL", s)
	}
}

// maxImageBytes is what registries take: 255 for a name, 128 for a tag, a digest and a host's name.
const maxImageBytes = 512

// checkImage says what keeps a string from being a reference to a container image. The engine says more.
func checkImage(s string) error {
	if len(s) > maxImageBytes {
		return fmt.Errorf("has %d bytes: expected at most %d", len(s), maxImageBytes)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && strings.IndexByte("._-/:@+", c) >= 0) {
			return fmt.Errorf("%q is not the name of an image: expected one such as digits:3 or registry.example.com/team/digits:3", s)
		}
	}
	return nil
}

// execText reports whether s can be handed to a program: no NUL ends it early, and JSON and YAML can carry it.
func execText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func plainText(s string) bool {
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return false
		}
	}
	return utf8.ValidString(s)
}

func envName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
