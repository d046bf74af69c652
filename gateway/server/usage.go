package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers/node"
	"github.com/xebec-serving/xebec/scheduler/placement"
	"go.uber.org/zap"
)

// measureEvery is how often it is looked at what replicas take. A look costs about a tenth of a millisecond for each process.
const measureEvery = 5 * time.Second

// usage is what one replica of a version was seen to take.
type usage struct {
	memoryBytes int64 // the mean of what its replicas hold, as next counts it; 0: not measured yet
	cpuMillis   int64 // the mean lately
	replicas    int   // that it was seen in
	grown       bool  // one of them had been at work for a while: it may take less than was declared
	pids        []int // of those that it was seen in
}

// seen is what one process of a version holds.
type seen struct {
	pid         int
	memoryBytes int64
	cpuMillis   int64
	grown       bool // it has been at work for a while
}

// next is the usage after a look. What is planned with is a mean, so that all replicas together count as what they hold: one that leaks
// takes no room from the others. One that has only started counts as those that have been at work for a while, for so much it will take. It
// goes up at once and down slowly, but starts anew where a replica has ended that it stood on.
func (u usage) next(all []seen) usage {
	if len(all) == 0 {
		return u
	}
	var out usage
	var work, others int64 // the mean of those that have been at work, the most of the others
	n := int64(0)
	for _, p := range all {
		out.pids = append(out.pids, p.pid)
		out.cpuMillis += p.cpuMillis
		if p.grown {
			work, n = work+p.memoryBytes, n+1
		} else {
			others = max(others, p.memoryBytes)
		}
	}
	out.replicas = len(all)
	out.cpuMillis /= int64(out.replicas)
	out.grown = u.grown || n > 0
	like := others
	if n > 0 {
		like = work / n
	}
	sum := int64(0)
	for _, p := range all {
		if p.grown {
			sum += p.memoryBytes
		} else {
			sum += max(like, p.memoryBytes)
		}
	}
	out.memoryBytes = sum / int64(out.replicas)
	ended := slices.ContainsFunc(u.pids, func(pid int) bool { return !slices.Contains(out.pids, pid) })
	if n == 0 || !ended {
		out.memoryBytes = max(out.memoryBytes, u.memoryBytes-u.memoryBytes/memoryMargin)
	}
	return out
}

// budget is what the node has for replicas.
type budget struct {
	placement.Resources
	from string // where that is known from, for people
}

// gpu is one of the node's GPUs, which a replica has for itself.
type gpu struct {
	index int
	user  uint64 // the launch; 0: free
}

// detectBudget is what the machine has, or what the operator says.
func detectBudget(cfg Config, log *zap.Logger) (budget, []gpu) {
	var b budget
	found, err := node.Detect()
	if err != nil {
		log.Warn("what this machine has could not be found out: say it with --node-cpu and --node-memory, or every replica is taken to fit", zap.Error(err))
	}
	b.CPUMillis, b.MemoryBytes, b.from = found.CPUMillis, found.MemoryBytes, found.From
	if cfg.NodeCPU > 0 {
		b.CPUMillis = int64(cfg.NodeCPU * 1000)
	}
	if cfg.NodeMemoryBytes > 0 {
		b.MemoryBytes = cfg.NodeMemoryBytes
	}
	if cfg.NodeCPU > 0 || cfg.NodeMemoryBytes > 0 {
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

// resourcesOf is what a spec says that a replica takes.
func resourcesOf(r *api.ResourceSpec) placement.Resources {
	return placement.Resources{CPUMillis: int64(r.CPU * 1000), MemoryBytes: r.MemoryBytes, GPUs: int64(r.GPU)}
}

// memoryMargin is what is planned with beyond what was measured: a thirty-second part.
const memoryMargin = 32

// takesNow is what is planned with for a replica of the version: memory as measured, once it has been, the rest as declared. Cores are not
// replaced by what is used of them: a replica that idles now will want them when it is asked, and a busy one on a full machine shows no
// more than it gets.
func (c *capacity) takesNow(st *seat) placement.Resources {
	t := resourcesOf(&st.d.spec().Resources)
	if m := st.takes.memoryBytes; m > t.MemoryBytes || m > 0 && st.takes.grown {
		t.MemoryBytes = min(m+m/memoryMargin, c.budget.MemoryBytes) // it has run here, so it can
	}
	return t
}

// measure looks at what replicas take, and what zygotes hold, which is not there for replicas.
func (c *capacity) measure() {
	c.mu.Lock()
	var pids []int
	var of []*seat
	var at []seen
	for _, st := range c.order {
		for _, p := range st.d.processes() {
			pids, of, at = append(pids, p.pid), append(of, st), append(at, p)
		}
	}
	c.mu.Unlock()
	zygotes := c.s.zygotes()
	if pids = append(pids, zygotes...); len(pids) == 0 {
		c.zygotesHold(0, 0)
		return
	}
	c.usages = c.meter.Read(time.Now(), pids, c.usages)
	held := int64(0)
	for _, u := range c.usages[len(at):] {
		held += max(0, u.MemoryBytes)
	}
	c.zygotesHold(len(zygotes), held)
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[*seat][]seen{}
	for i := range at {
		if u := c.usages[i]; u.MemoryBytes > 0 { // else it has ended meanwhile
			at[i].memoryBytes, at[i].cpuMillis = u.MemoryBytes, u.CPUMillis
			all[of[i]] = append(all[of[i]], at[i])
		}
	}
	for st, theirs := range all {
		if c.seats[st.d] == st {
			st.takes = st.takes.next(theirs)
		}
	}
}

// zygotesHold notes what zygotes hold: a part of the node that no replica gets.
func (c *capacity) zygotesHold(n int, memoryBytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zygoteCount, c.zygoteBytes = n, memoryBytes
	c.nodes[0].Budget.MemoryBytes = max(0, c.budget.MemoryBytes-memoryBytes)
}

// A replica that has been ready for so long and has answered so many batches takes what it takes; before, it may still fill its memory.
const (
	grownAfter   = 30 * time.Second
	grownBatches = knownBatches
)

// processes are those of the version's replicas that are ready: what one takes that is still loading says nothing.
func (d *deployment) processes() (all []seen) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.launches {
		if l.worker != nil && l.worker.PID() > 0 {
			batches, _ := l.worker.Served()
			all = append(all, seen{pid: l.worker.PID(), grown: batches >= grownBatches && time.Since(l.ready) >= grownAfter})
		}
	}
	return all
}

// whyShort says in words why a version has fewer replicas than it wants.
func (c *capacity) whyShort(st *seat) string {
	takes := c.takesNow(st)
	switch st.short {
	case placement.NotShort:
		return ""
	case placement.NeverFits:
		return fmt.Sprintf("one replica takes %s, more than the node has (%s)", resourcesText(takes), c.roomText())
	case placement.Outgrown:
		return fmt.Sprintf("what runs takes more than the node has (%s), and its replicas (%s each) were the least useful", c.roomText(), resourcesText(takes))
	case placement.Evicted:
		return fmt.Sprintf("others have a better claim to the room that its replicas took (%s each; the node has %s)", resourcesText(takes), c.roomText())
	default:
		free := placement.Resources{}
		if len(c.out.Free) > 0 {
			free = c.out.Free[0]
			free.CPUMillis, free.MemoryBytes, free.GPUs = max(0, free.CPUMillis), max(0, free.MemoryBytes), max(0, free.GPUs)
		}
		return fmt.Sprintf("there is no room: one replica takes %s, the node has %s, of which %s is free", resourcesText(takes), c.roomText(), resourcesText(free, takes))
	}
}

// roomText is what the node has.
func (c *capacity) roomText() string {
	text := resourcesText(c.budget.Resources)
	if c.zygoteBytes > 0 {
		text += fmt.Sprintf(", of which zygotes hold %d MiB", c.zygoteBytes>>20)
	}
	return text
}

// resourcesText names what there is of r, and what there is not where others count it.
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

// takeGPUs gives a launch GPUs of its own. They are there, for the placement counts them; at the end of another replica they may be a
// moment late.
func (c *capacity) takeGPUs(launch uint64, n int) ([]string, error) {
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

func (c *capacity) freeGPUs(launch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.gpus {
		if c.gpus[i].user == launch {
			c.gpus[i].user = 0
		}
	}
}

// fits says why a replica of the spec could not run here even if nothing else did; nil: it could.
func (c *capacity) fits(m *api.ModelSpec) error {
	takes, has := resourcesOf(&m.Resources), c.budget.Resources
	whole := [...]placement.Node{{Budget: c.budget.Resources}} // zygotes come and go
	switch _, lacks := placement.Fits(takes, whole[:]); lacks {
	case placement.GPUs:
		return api.FieldErrors{{Path: "resources.gpu", Message: fmt.Sprintf("a replica takes %d GPUs, this node has %d", takes.GPUs, has.GPUs)}}
	case placement.Memory:
		return api.FieldErrors{{Path: "resources.memory", Message: fmt.Sprintf("a replica takes %s, this node has %d MiB for replicas (%s): declare less, or serve it where there is more", api.FormatBytes(takes.MemoryBytes), has.MemoryBytes>>20, c.budget.from)}}
	case placement.CPU:
		return api.FieldErrors{{Path: "resources.cpu", Message: fmt.Sprintf("a replica takes %g cores, this node has %g (%s): declare less, or serve it where there are more", m.Resources.CPU, float64(has.CPUMillis)/1000, c.budget.from)}}
	}
	return nil
}
