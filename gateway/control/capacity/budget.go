package capacity

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers/node"
	"github.com/xebec-serving/xebec/scheduler/placement"
	"go.uber.org/zap"
)

// budget is what the node has for replicas.
type budget struct {
	placement.Resources
	from string // where the figures come from, for people
}

// gpu is one of the node's GPUs. A replica has it for itself.
type gpu struct {
	index int
	user  uint64 // the launch; 0: free
}

// detectBudget is what the machine has, or what the operator set.
func detectBudget(cfg Config) (budget, []gpu) {
	var b budget
	found, err := node.Detect()
	if err != nil {
		cfg.Log.Warn("the machine's cores and memory could not be detected: set --node-cpu and --node-memory, or every replica is taken to fit", zap.Error(err))
	}
	b.CPUMillis, b.MemoryBytes, b.from = found.CPUMillis, found.MemoryBytes, found.From
	if cfg.CPU > 0 {
		b.CPUMillis = int64(cfg.CPU * 1000)
	}
	if cfg.MemoryBytes > 0 {
		b.MemoryBytes = cfg.MemoryBytes
	}
	if cfg.CPU > 0 || cfg.MemoryBytes > 0 {
		b.from += "; as --node-cpu and --node-memory say"
	}
	const plenty = 1 << 50 // what is not known does not bind
	if b.CPUMillis == 0 {
		b.CPUMillis = plenty
	}
	if b.MemoryBytes == 0 {
		b.MemoryBytes = plenty
	}
	var gpus []gpu
	for _, i := range found.GPUs {
		gpus = append(gpus, gpu{index: i})
	}
	b.GPUs = int64(len(gpus))
	return b, gpus
}

// resourcesOf is what a spec declares for one replica.
func resourcesOf(r *api.ResourceSpec) placement.Resources {
	return placement.Resources{CPUMillis: int64(r.CPU * 1000), MemoryBytes: r.MemoryBytes, GPUs: int64(r.GPU)}
}

// Fits returns why a replica of the spec could not run on this node even if nothing else did. The error is nil or
// api.FieldErrors.
func (c *Capacity) Fits(m *api.ModelSpec) error {
	needs, has := resourcesOf(&m.Resources), c.budget.Resources
	whole := [...]placement.Node{{Budget: c.budget.Resources}} // preloaded modules come and go
	switch _, lacks := placement.Fits(needs, whole[:]); lacks {
	case placement.GPUs:
		return api.FieldErrors{{Path: "resources.gpu", Message: fmt.Sprintf("a replica takes %d GPUs, this node has %d", needs.GPUs, has.GPUs)}}
	case placement.Memory:
		return api.FieldErrors{{Path: "resources.memory", Message: fmt.Sprintf("a replica takes %s, this node has %d MiB for replicas (%s): declare less, or serve it where there is more", api.FormatBytes(needs.MemoryBytes), has.MemoryBytes>>20, c.budget.from)}}
	case placement.CPU:
		return api.FieldErrors{{Path: "resources.cpu", Message: fmt.Sprintf("a replica takes %g cores, this node has %g (%s): declare less, or serve it where there are more", m.Resources.CPU, float64(has.CPUMillis)/1000, c.budget.from)}}
	}
	return nil
}

// TakeGPUs gives a launch n GPUs of its own, as environment variables. The placement counts GPUs, so there are enough, except
// for the moment in which the replica that had them is still ending.
func (c *Capacity) TakeGPUs(launch uint64, n int) (env []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var free []int
	for i := range c.gpus {
		if c.gpus[i].user == 0 {
			free = append(free, i)
		}
	}
	if len(free) < n {
		return nil, fmt.Errorf("%d GPUs are free, %d are wanted: the replica that had them is still ending", len(free), n)
	}
	var indices []string
	for _, i := range free[:n] {
		c.gpus[i].user = launch
		indices = append(indices, fmt.Sprint(c.gpus[i].index))
	}
	list := strings.Join(indices, ",")
	return []string{"CUDA_VISIBLE_DEVICES=" + list, "XEBEC_GPUS=" + list}, nil
}

// FreeGPUs takes a launch's GPUs back.
func (c *Capacity) FreeGPUs(launch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.gpus {
		if c.gpus[i].user == launch {
			c.gpus[i].user = 0
		}
	}
}

// whyShort says in words why a version has fewer replicas than it wants; empty: it has not. Its caller holds Capacity.mu.
func (c *Capacity) whyShort(st *seat) string {
	needs := c.plannedUsage(st)
	switch st.short {
	case placement.NotShort:
		return ""
	case placement.NeverFits:
		return fmt.Sprintf("one replica takes %s, more than the node has (%s)", resourcesText(needs), c.budgetText())
	case placement.Outgrown:
		return fmt.Sprintf("running replicas use more than the node has (%s), and those of this version (%s each) were the least useful", c.budgetText(), resourcesText(needs))
	case placement.Evicted:
		return fmt.Sprintf("other versions have a better claim to the room of its replicas (%s each; the node has %s)", resourcesText(needs), c.budgetText())
	default:
		free := placement.Resources{}
		if len(c.out.Free) > 0 {
			free = c.out.Free[0]
			free.CPUMillis, free.MemoryBytes, free.GPUs = max(0, free.CPUMillis), max(0, free.MemoryBytes), max(0, free.GPUs)
		}
		return fmt.Sprintf("there is no room: one replica takes %s, the node has %s, of which %s is free", resourcesText(needs), c.budgetText(), resourcesText(free, needs))
	}
}

func (c *Capacity) budgetText() string {
	text := resourcesText(c.budget.Resources)
	if c.preloadBytes > 0 {
		text += fmt.Sprintf(", of which zygotes hold %d MiB", c.preloadBytes>>20)
	}
	return text
}

// resourcesText names the resources of r that are not 0, in r or in one of others.
func resourcesText(r placement.Resources, others ...placement.Resources) string {
	counts := r
	for _, o := range others {
		counts.CPUMillis, counts.MemoryBytes, counts.GPUs = counts.CPUMillis|o.CPUMillis, counts.MemoryBytes|o.MemoryBytes, counts.GPUs|o.GPUs
	}
	var parts []string
	if counts.CPUMillis != 0 {
		parts = append(parts, fmt.Sprintf("%g cores", float64(r.CPUMillis)/1000))
	}
	if counts.MemoryBytes != 0 {
		parts = append(parts, fmt.Sprintf("%d MiB of memory", r.MemoryBytes>>20))
	}
	if counts.GPUs != 0 {
		parts = append(parts, fmt.Sprintf("%d GPUs", r.GPUs))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
