package cgroup

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xebec-serving/xebec/containers"
)

// tree is a hierarchy of version 2 that follows its rules: controllers are enabled top-down, and only the root holds
// processes and enables controllers.
type tree struct {
	proc   map[string]string // the files of /proc
	groups map[string]*node
	denied map[string]syscall.Errno // by path: the error of writing, or of making something there
	locked map[*node]bool           // by another gateway, which lives
	old    bool                     // a kernel without cpu.idle
}

// lock implements locks: nothing but the directories in locked is.
func (tr *tree) lock(dir string, exclusive bool) (lock, error) {
	switch n := tr.groups[dir]; {
	case n == nil:
		return nil, fs.ErrNotExist
	case exclusive && tr.locked[n]:
		return nil, syscall.EWOULDBLOCK
	default:
		return treeLock{tr, n, dir}, nil
	}
}

type treeLock struct {
	tree *tree
	node *node
	dir  string
}

func (l treeLock) Close() error { return nil }
func (l treeLock) holds() bool  { return l.tree.groups[l.dir] == l.node }

func (tr *tree) device(string) (uint64, error) { return 7, nil }

type node struct {
	on     []string // subtree_control
	pids   []int
	values map[string]string
}

const mountPoint = "/sys/fs/cgroup"

// start returns when each process of the tree began: ten times its pid.
func start(pid int) string { return strconv.Itoa(pid * 10) }

// newTree puts a gateway into own, beside the other processes. parents maps a process to its parent.
func newTree(own string, gateway int, inOwn []int, parents map[int]int) *tree {
	tr := &tree{proc: map[string]string{"/proc/self/mountinfo": version2Mounts}, groups: map[string]*node{}, denied: map[string]syscall.Errno{}, locked: map[*node]bool{}}
	tr.groups[mountPoint] = &node{on: []string{"cpu", "memory", "pids"}, values: map[string]string{}}
	dir := mountPoint
	for name := range strings.SplitSeq(strings.Trim(own, "/"), "/") {
		dir = path.Join(dir, name)
		_ = tr.mkdir(dir)
		tr.groups[dir].on = []string{"cpu", "memory", "pids"}
	}
	tr.groups[dir].on = nil
	for pid, parent := range parents {
		tr.proc[path.Join("/proc", strconv.Itoa(pid), "stat")] = strconv.Itoa(pid) + " (p) S " + strconv.Itoa(parent) + strings.Repeat(" 0", 17) + " " + start(pid) + " 0"
		tr.proc[path.Join("/proc", strconv.Itoa(pid), "comm")] = "program" + strconv.Itoa(pid) + "\n"
	}
	tr.groups[dir].pids = slices.Clone(inOwn)
	tr.see(gateway)
	return tr
}

// see makes /proc/self that of a process.
func (tr *tree) see(pid int) {
	for dir, n := range tr.groups {
		if slices.Contains(n.pids, pid) {
			tr.proc["/proc/self/cgroup"] = "0::" + strings.TrimPrefix(dir, mountPoint) + "\n"
		}
	}
}

// controllers returns those that the parent cgroup enables.
func (tr *tree) controllers(dir string) []string {
	if dir == mountPoint {
		return []string{"cpu", "memory", "pids"}
	}
	return tr.groups[path.Dir(dir)].on
}

func (tr *tree) read(p string) ([]byte, error) {
	if content, ok := tr.proc[p]; ok {
		return []byte(content), nil
	}
	n := tr.groups[path.Dir(p)]
	if n == nil {
		return nil, fs.ErrNotExist
	}
	switch path.Base(p) {
	case "cgroup.controllers":
		return []byte(strings.Join(tr.controllers(path.Dir(p)), " ") + "\n"), nil
	case "cgroup.subtree_control":
		return []byte(strings.Join(n.on, " ") + "\n"), nil
	case "cgroup.procs":
		var lines string
		for _, pid := range n.pids {
			lines += strconv.Itoa(pid) + "\n"
		}
		return []byte(lines), nil
	}
	if value, ok := n.values[path.Base(p)]; ok {
		return []byte(value), nil
	}
	return nil, fs.ErrNotExist
}

func (tr *tree) write(p, s string) error {
	if errno := tr.denied[p]; errno != 0 {
		return errno
	}
	dir, file := path.Split(p)
	dir = path.Clean(dir)
	n := tr.groups[dir]
	controller, _, _ := strings.Cut(file, ".")
	switch {
	case n == nil:
		return fs.ErrNotExist
	case file == "cgroup.subtree_control":
		name := strings.TrimPrefix(s, "+")
		if !slices.Contains(tr.controllers(dir), name) {
			return syscall.ENOENT
		}
		if dir != mountPoint && len(n.pids) > 0 {
			return syscall.EBUSY
		}
		n.on = append(n.on, name)
	case file == "cgroup.procs":
		pid, _ := strconv.Atoi(s)
		if dir != mountPoint && len(n.on) > 0 {
			return syscall.EBUSY
		}
		for _, other := range tr.groups {
			other.pids = slices.DeleteFunc(other.pids, func(p int) bool { return p == pid })
		}
		n.pids = append(n.pids, pid)
	case file == "cpu.idle" && tr.old:
		return fs.ErrNotExist
	case file == "cpu.weight" && n.values["cpu.idle"] == "1":
		return syscall.EINVAL
	case dir != mountPoint && slices.Contains(tr.controllers(dir), controller) && file != "memory.swap.max": // swap is not accounted here
		if s != "" {
			n.values[file] = s
		}
		if file == "cpu.idle" && s == "0" {
			n.values["cpu.weight"] = "100"
		}
	default:
		return fs.ErrNotExist
	}
	return nil
}

func (tr *tree) mkdir(p string) error {
	switch {
	case tr.denied[path.Dir(p)] != 0:
		return tr.denied[path.Dir(p)]
	case tr.groups[p] != nil:
		return fs.ErrExist
	case tr.groups[path.Dir(p)] == nil:
		return fs.ErrNotExist
	}
	tr.groups[p] = &node{values: map[string]string{}}
	return nil
}

func (tr *tree) rmdir(p string) error {
	names, err := tr.list(p)
	if err != nil {
		return err
	}
	if len(names) > 0 || len(tr.groups[p].pids) > 0 {
		return syscall.EBUSY
	}
	delete(tr.groups, p)
	return nil
}

func (tr *tree) list(p string) ([]string, error) {
	if tr.groups[p] == nil {
		return nil, fs.ErrNotExist
	}
	var names []string
	for dir := range tr.groups {
		if dir != p && path.Dir(dir) == p {
			names = append(names, path.Base(dir))
		}
	}
	return names, nil
}

const (
	service = "/system.slice/xebec.service"
	ownDir  = mountPoint + service
	// gatewayPID is the gateway of these tests, and baseDir where it makes its groups.
	gatewayPID = 100
)

var (
	baseDir = ownDir + "/xebec-100-" + life + "-7"
	allDir  = baseDir + "/replicas"
)

// openTree opens a Manager over a tree. Its files do not exist on the host, where Kill looks.
func openTree(t *testing.T, tr *tree) *Manager { return open(tr, tr, t.TempDir(), gatewayPID, 0) }

func checkAble(t *testing.T, m *Manager, want map[Resource]string) {
	t.Helper()
	for _, r := range resources {
		err := m.Unsupported(r)
		if want[r] == "" && err != nil || want[r] != "" && (err == nil || !strings.Contains(err.Error(), want[r])) {
			t.Errorf("%s: %v, expected %q", r, err, want[r])
		}
	}
}

var allLimits = containers.Limits{CPUMillis: 1500, MemoryBytes: 512 << 20, PIDs: 100}

// A gateway that is alone in its cgroup moves into a leaf, with what it has started, and its groups have all
// controllers.
func TestUnifiedAlone(t *testing.T) {
	tr := newTree(service, gatewayPID, []int{gatewayPID, 101, 102}, map[int]int{gatewayPID: 1, 101: gatewayPID, 102: 101})
	m := openTree(t, tr)
	checkAble(t, m, nil)
	if pids := tr.groups[baseDir+"/gateway"].pids; !slices.Equal(pids, []int{gatewayPID, 101, 102}) {
		t.Errorf("in the leaf: %v", pids)
	}
	g, err := m.Create("digits@1/x", allLimits)
	if err != nil {
		t.Fatal(err)
	}
	places := g.Places()
	if len(places) != 1 || !places[0].Unified || places[0].Home != "" || !strings.HasPrefix(path.Base(places[0].Dir), "digits@1_x-") {
		t.Fatalf("places %+v", places)
	}
	values := tr.groups[g.parts[0].dir].values
	for file, want := range map[string]string{"memory.max": "536870912", "memory.oom.group": "1", "pids.max": "100", "cpu.max": "150000 100000"} {
		if values[file] != want {
			t.Errorf("%s is %q, expected %q", file, values[file], want)
		}
	}
	if err := g.SetQuiet(true); err != nil || values["cpu.idle"] != "1" {
		t.Errorf("after SetQuiet(true): idle %q, error %v", values["cpu.idle"], err)
	}
	if err := g.SetQuiet(false); err != nil || values["cpu.idle"] != "0" || values["cpu.weight"] != "100" {
		t.Errorf("after SetQuiet(false): idle %q, weight %q, error %v", values["cpu.idle"], values["cpu.weight"], err)
	}
	g.Started()
	values["memory.events"], values["pids.events"] = "low 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 1\n", "max 4\n"
	if ev := g.Events(); ev != (Events{OOMKills: 3, OverLimit: true, PIDsRefused: 4}) {
		t.Errorf("events %+v", ev)
	}
	values["memory.events"] = "oom 0\noom_kill 1\n"
	if ev := g.Events(); ev.OverLimit {
		t.Errorf("events %+v: expected OverLimit false", ev)
	}
	if values["pids.max"] != "100" {
		t.Errorf("pids.max is %q after the start", values["pids.max"])
	}
	tr.groups[g.parts[0].dir+"/its own"] = &node{} // a replica that runs as root may make cgroups too
	g.Remove()
	if tr.groups[g.parts[0].dir] != nil {
		t.Error("the group is still there")
	}
	if err := g.SetQuiet(true); err != nil {
		t.Errorf("SetQuiet after Remove: %v", err)
	}

	// A second Manager of the same process finds it where it has moved to.
	tr.see(gatewayPID)
	second := openTree(t, tr)
	checkAble(t, second, nil)
	if second.hierarchies[0].base != baseDir {
		t.Errorf("the second Manager makes its groups in %s", second.hierarchies[0].base)
	}
}

// A group without a limit of processor time can be quiet if it was made for that. Without cpu.idle it has the least weight.
func TestUnifiedYielding(t *testing.T) {
	for _, old := range []bool{false, true} {
		tr := newTree(service, gatewayPID, []int{gatewayPID}, map[int]int{gatewayPID: 1})
		tr.old = old
		m := open(tr, tr, t.TempDir(), gatewayPID, 1<<30)
		quiet := map[string]string{"cpu.idle": "1"}
		normal := map[string]string{"cpu.idle": "0", "cpu.weight": "100"}
		if old {
			quiet, normal = map[string]string{"cpu.weight": "1"}, map[string]string{"cpu.weight": "100"}
		}
		g, err := m.CreateYielding("m", containers.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if len(g.parts) != 1 || path.Dir(g.parts[0].dir) != allDir {
			t.Fatalf("parts %+v: expected one below the directory that has the bound", g.parts)
		}
		values := tr.groups[g.parts[0].dir].values
		if values["cpu.max"] != "" || values["memory.max"] != "" || values["pids.max"] != "" {
			t.Errorf("limits %v of a group without any", values)
		}
		for _, step := range []struct {
			quiet bool
			want  map[string]string
		}{{true, quiet}, {true, quiet}, {false, normal}} {
			if err := g.SetQuiet(step.quiet); err != nil {
				t.Errorf("old %v: SetQuiet(%v): %v", old, step.quiet, err)
			}
			for file, want := range step.want {
				if values[file] != want {
					t.Errorf("old %v: after SetQuiet(%v) %s is %q, expected %q", old, step.quiet, file, values[file], want)
				}
			}
		}
		g.Remove()
	}
}

// Groups that are bounded together are in one cgroup that has the bound, beside the gateway. One without a limit of its own has no
// other, and is killed as a whole. An exit is blamed on the bound only if it was reached in the group's time.
func TestUnifiedBound(t *testing.T) {
	tr := newTree(service, gatewayPID, []int{gatewayPID}, map[int]int{gatewayPID: 1})
	m := open(tr, tr, t.TempDir(), gatewayPID, 1<<30)
	checkAble(t, m, nil)
	all := tr.groups[allDir].values
	if all["memory.max"] != "1073741824" {
		t.Errorf("the bound of all is %q", all["memory.max"])
	}
	if own := tr.groups[baseDir].values["memory.max"]; own != "" {
		t.Errorf("the gateway is bounded too, by %q", own)
	}
	all["memory.events.local"] = "oom 2\n"
	g, err := m.Create("m", containers.Limits{})
	if err != nil || len(g.parts) != 1 {
		t.Fatalf("group %+v, error %v", g, err)
	}
	values := tr.groups[g.parts[0].dir].values
	if len(values) != 1 || values["memory.oom.group"] != "1" {
		t.Errorf("values %v: expected that it is killed as a whole, and no limit", values)
	}
	limited, err := m.Create("m", containers.Limits{MemoryBytes: 64 << 20})
	if err != nil || tr.groups[limited.parts[0].dir].values["memory.max"] != "67108864" {
		t.Errorf("group %+v, error %v: expected its own limit", limited, err)
	}
	if weight := all["cpu.weight"]; weight != "200" {
		t.Errorf("two groups together weigh %s: expected 200", weight)
	}
	values["memory.events"] = "oom 0\noom_kill 1\n"
	if ev := g.Events(); ev != (Events{OOMKills: 1}) {
		t.Errorf("events %+v: the bound was reached before", ev)
	}
	all["memory.events.local"] = "oom 3\n"
	if ev := g.Events(); ev != (Events{OOMKills: 1, OverBound: true}) {
		t.Errorf("events %+v", ev)
	}
	delete(all, "memory.events.local") // before Linux 5.2
	all["memory.events"] = "oom 3\n"
	if ev := g.Events(); ev != (Events{OOMKills: 1, OverBound: true}) {
		t.Errorf("events of an old kernel %+v", ev)
	}
	g.Remove()
	limited.Remove()
	m.Close()
	if tr.groups[allDir] != nil {
		t.Error("the directory of all is left")
	}
	if g, err = m.Create("m", containers.Limits{}); err != nil || tr.groups[allDir].values["memory.max"] != "1073741824" {
		t.Errorf("group %+v, error %v: the directory of all has no bound when it was made again", g, err)
	}
	tr.denied[allDir+"/memory.swap.max"] = syscall.EINVAL
	checkAble(t, open(tr, tr, t.TempDir(), gatewayPID, 1<<30), map[Resource]string{Memory: "together cannot be bounded"})
}

// Limits that are not set make no group, and no limit in one.
func TestUnifiedSomeLimits(t *testing.T) {
	tr := newTree(service, gatewayPID, []int{gatewayPID}, map[int]int{gatewayPID: 1})
	m := openTree(t, tr)
	g, err := m.Create("", containers.Limits{OpenFiles: 10, DataBytes: 10})
	if err != nil || len(g.Places()) != 0 || len(g.parts) != 0 {
		t.Errorf("group %+v, error %v: expected one without places", g, err)
	}
	g, err = m.Create("", containers.Limits{CPUMillis: 1})
	if err != nil {
		t.Fatal(err)
	}
	values := tr.groups[g.parts[0].dir].values
	if len(values) != 1 || values["cpu.max"] != "1000 100000" { // the least that the kernel accepts
		t.Errorf("values %v", values)
	}
}

func TestUnifiedRefused(t *testing.T) {
	alone := map[int]int{gatewayPID: 1}
	all := func(s string) map[Resource]string { return map[Resource]string{Memory: s, PIDs: s, CPU: s} }
	for _, tc := range []struct {
		name    string
		parents map[int]int
		change  func(*tree)
		want    map[Resource]string
	}{
		{"a shell beside it", map[int]int{gatewayPID: 50, 50: 1, 60: 1}, nil, all("(50 program50, 60 program60)")},
		{"many beside it", map[int]int{gatewayPID: 50, 50: 1, 51: 1, 52: 1, 53: 1, 54: 1}, nil, all("52 program52 and 2 more")},
		{"read-only", alone, func(tr *tree) { tr.denied[ownDir] = syscall.EROFS }, all("read-only")},
		{"no permission", alone, func(tr *tree) { tr.denied[ownDir] = syscall.EACCES }, all("Delegate=yes")},
		{"no permission to enable controllers", alone, func(tr *tree) { tr.denied[ownDir+"/cgroup.subtree_control"] = syscall.EACCES }, all("may not change")},
		{"too many", alone, func(tr *tree) { tr.denied[ownDir] = syscall.EAGAIN }, all("cgroup.max.descendants")},
		{"a threaded one", alone, func(tr *tree) { tr.denied[ownDir+"/cgroup.subtree_control"] = syscall.EOPNOTSUPP }, all("not supported")},
		{"no processor time", alone, func(tr *tree) { tr.groups[path.Dir(ownDir)].on = []string{"memory", "pids"} },
			map[Resource]string{CPU: "the controller cpu is not enabled"}},
		{"a kernel without cpu.max", alone, func(tr *tree) { tr.denied[allDir+"/cpu.max"] = syscall.ENOENT }, map[Resource]string{CPU: "have no cpu.max"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var pids []int
			for pid := range tc.parents {
				pids = append(pids, pid)
			}
			slices.Sort(pids)
			tr := newTree(service, gatewayPID, pids, tc.parents)
			if tc.change != nil {
				tc.change(tr)
			}
			m := openTree(t, tr)
			checkAble(t, m, tc.want)
			if len(tc.want) == len(resources) && !slices.Equal(tr.groups[ownDir].pids, pids) {
				t.Errorf("in the gateway's cgroup: %v, expected %v as before", tr.groups[ownDir].pids, pids)
			}
			g, err := m.Create("m", allLimits)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(g.Places()); (n == 0) != (len(tc.want) == len(resources)) {
				t.Errorf("the group is in %d places", n)
			}
			for _, p := range g.parts {
				if value := tr.groups[p.dir].values["cpu.max"]; value != "" && tc.want[CPU] != "" {
					t.Errorf("cpu.max is %q", value)
				}
			}
		})
	}
}

// A limit that the kernel refuses is an error, and leaves no group behind.
func TestUnifiedCreateFails(t *testing.T) {
	tr := newTree(service, gatewayPID, []int{gatewayPID}, map[int]int{gatewayPID: 1})
	m := openTree(t, tr)
	next := path.Join(allDir, "m-"+strconv.FormatUint(created.Load()+1, 10))
	tr.denied[next+"/pids.max"] = syscall.EINVAL
	if g, err := m.Create("m", allLimits); err == nil || !strings.Contains(err.Error(), "limits.pids") || !strings.Contains(err.Error(), next) {
		t.Errorf("group %+v, error %v: expected an error that names the limit and the file", g, err)
	}
	if tr.groups[next] != nil {
		t.Error("the group is still there")
	}
	tr.denied[allDir] = syscall.EAGAIN
	if _, err := m.Create("m", allLimits); err == nil || !strings.Contains(err.Error(), "cgroup.max.descendants") {
		t.Errorf("error %v", err)
	}
}

// What ended gateways have left is removed, and nothing else. The lock of a directory tells which those are, because a pid
// may be another process here, or none: the gateway may be in another pid namespace.
func TestUnifiedLeft(t *testing.T) {
	tr := newTree(service, gatewayPID, []int{gatewayPID}, map[int]int{gatewayPID: 1, 70: 1})
	for _, dir := range []string{
		"xebec-69-690-7", "xebec-69-690-7/m-1", "xebec-69-690-7/m-1/deep", "xebec-69-690-7/gateway", // ended
		"xebec-67-670-7", "xebec-67-670-7/replicas", "xebec-67-670-7/replicas/m-1", "xebec-67-670-7/replicas/m-1/deep", "xebec-67-670-7/replicas/m-2",
		"xebec-70-700-7", "xebec-70-700-7/m-1", // ended, and its pid is that of another process
		"xebec-71-710-7", "xebec-71-710-7/m-1", // it lives, and is not visible
		"xebec-70-701-7", "xebec-70-701-7/replicas", // the same, with a pid that is that of another process
		"xebec-72-720-8", "xebec-72-720-8/m-1", // its lock would not be visible
		"xebec-73-730", "xebec-73-730/m-1", // an earlier program has made it, and holds no lock
		"xebec-68-680-7", "xebec-68-680-7/gateway", // a process is still in its leaf
		"xebec-tools", "other",
	} {
		if err := tr.mkdir(path.Join(ownDir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	tr.groups[ownDir+"/xebec-68-680-7/gateway"].pids = []int{72}
	for _, lives := range []string{"xebec-71-710-7", "xebec-70-701-7"} {
		tr.locked[tr.groups[path.Join(ownDir, lives)]] = true
	}
	openTree(t, tr)
	names, _ := tr.list(ownDir)
	slices.Sort(names)
	want := []string{"other", path.Base(baseDir), "xebec-68-680-7", "xebec-70-701-7", "xebec-71-710-7", "xebec-72-720-8", "xebec-73-730", "xebec-tools"}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("left: %v, expected %v", names, want)
	}
	for _, dir := range []string{"xebec-71-710-7/m-1", "xebec-70-701-7/replicas", "xebec-72-720-8/m-1", "xebec-73-730/m-1"} {
		if tr.groups[path.Join(ownDir, dir)] == nil {
			t.Errorf("%s was removed: its gateway may live", dir)
		}
	}
}

// Groups whose processes hang, or belong to another namespace, delay a gateway only once.
func TestUnifiedLeftStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTree(service, gatewayPID, []int{gatewayPID}, map[int]int{gatewayPID: 1})
		for _, dir := range []string{"xebec-69-690-7", "xebec-69-690-7/m-1", "xebec-69-690-7/m-2", "xebec-69-690-7/m-3", "xebec-69-690-7/m-4"} {
			if err := tr.mkdir(path.Join(ownDir, dir)); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"m-1", "m-2", "m-3"} {
			tr.groups[path.Join(ownDir, "xebec-69-690-7", name)].pids = []int{0}
		}
		began := time.Now()
		m := openTree(t, tr)
		if took := time.Since(began); took != removeWait { // on the bubble's clock
			t.Errorf("it took %v, expected %v", took, removeWait)
		}
		checkAble(t, m, nil)
		if names, _ := tr.list(ownDir + "/xebec-69-690-7"); len(names) != 3 {
			t.Errorf("left: %v, expected those that hang", names)
		}
	})
}

// A gateway that was started by another one, to take over from it, begins in the leaf of that one. It makes its groups beside those of
// the other, and does not move anything.
func TestUnifiedSuccessor(t *testing.T) {
	tr := newTree(service, gatewayPID, []int{gatewayPID}, map[int]int{gatewayPID: 1, 101: gatewayPID})
	checkAble(t, openTree(t, tr), nil)
	const next = 101
	leafDir := baseDir + "/gateway"
	tr.groups[leafDir].pids = append(tr.groups[leafDir].pids, next)
	tr.see(next)
	m := open(tr, tr, "/", next, 0)
	checkAble(t, m, nil)
	if base := m.hierarchies[0].base; path.Dir(base) != ownDir || base == baseDir {
		t.Errorf("the second gateway makes its groups in %s", base)
	}
	if pids := tr.groups[leafDir].pids; !slices.Equal(pids, []int{gatewayPID, next}) {
		t.Errorf("in the leaf of the first: %v", pids)
	}
	if names, _ := tr.list(ownDir); len(names) != 2 {
		t.Errorf("%v: want a directory of each", names)
	}
}
