package docker

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// socketInside and modelInside are the paths of the gateway's socket and the model's directory in the container.
	socketInside = "/run/xebec/worker.sock"
	modelInside  = "/model"
	tmpInside    = "/tmp"

	// tmpOptions are the options of /tmp, and of every volume of the image. Both are memory and end with the replica.
	// 64 MiB hold lock files, sockets and the caches that libraries keep there.
	tmpOptions = "rw,noexec,nosuid,nodev,size=67108864,mode=1777"
	// shmBytes bounds /dev/shm: libraries put semaphores and small queues there. Batches do not pass through it.
	shmBytes = 16 << 20 //xebec:limit `/dev/shm` of a container
	// defaultPIDs bounds processes and threads if the launch does not. A numerical library starts one thread per core
	// for each of its pools, for which 512 suffices on large machines, and a fork bomb is stopped.
	defaultPIDs = 512 //xebec:limit processes and threads in a container without `limits.pids`
	// nobody is the user of replicas whose image does not name another one that is not root. Linux shows it as the
	// owner of files of unknown users, and it should own nothing.
	nobody = "65534:65534"

	envSocket = "XEBEC_SOCKET"
	// envGPUs lists the devices that the gateway has placed the replica on: "0,2". A container sees only these,
	// numbered from 0, so neither this variable nor CUDA_VISIBLE_DEVICES, which has the host's numbers, is passed on.
	envGPUs = "XEBEC_GPUS"
	envCUDA = "CUDA_VISIBLE_DEVICES"
)

// imageName matches what may stand in a request's path: a reference (registry, name, tag, digest) or an image's id.
var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$`)

// spec is the container's configuration for a launch.
type spec struct {
	launch  containers.Launch
	command []string // replaces the image's; empty: it does not
	name    string   // the container's
	user    string
	socket  string
	env     []string
	gpus    []string
	image   image
	volumes []string // the image's volumes
	labels  map[string]string
	memory  int64 // its bound in bytes; 0: none
	init    bool  // run an init, which reaps zombies and passes signals on
	// recursive: a read-only mount also makes read-only what is mounted below it.
	recursive bool
}

// newSpec checks a launch before the engine is asked: the messages are better here.
func newSpec(l containers.Launch) (*spec, error) {
	s := &spec{launch: l}
	if !imageName.MatchString(l.Image) || strings.Contains(l.Image, "..") {
		return nil, launchErrorf(os.ErrInvalid, "image %q: expected a name such as registry.example.org/team/model:1.2", l.Image)
	}
	last := map[string]int{}
	for i, entry := range l.Env {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsRune(entry, 0) {
			return nil, launchErrorf(os.ErrInvalid, "environment entry %q: expected NAME=value without zero bytes", name)
		}
		last[name] = i
	}
	for i, entry := range l.Env {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case last[name] != i:
		case name == envSocket:
			s.socket = value
		case name == envGPUs:
			s.gpus = strings.FieldsFunc(value, func(c rune) bool { return c == ',' })
		default:
			s.env = append(s.env, entry)
		}
	}
	if len(s.gpus) > 0 {
		s.env = slices.DeleteFunc(s.env, func(entry string) bool { return strings.HasPrefix(entry, envCUDA+"=") })
	}
	s.env = append(s.env, envSocket+"="+socketInside)
	if !filepath.IsAbs(s.socket) {
		return nil, fmt.Errorf("%s is %q: expected the path of the socket that was made for this replica", envSocket, s.socket)
	}
	if info, err := os.Stat(s.socket); err != nil {
		return nil, fmt.Errorf("the socket that was made for this replica: %w", err)
	} else if info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("%s is not a socket: expected the one that was made for this replica", s.socket)
	}
	return s, nil
}

// userOf returns the user of a replica: the image's user if it is given by number and not root, else nobody. A single
// number is also used as the group: the image's own table of users is not read, and the engine would take group 0.
func userOf(image string) (user string, uid, gid int) {
	u, g, grouped := strings.Cut(image, ":")
	if !grouped {
		g = u
	}
	uid, err1 := strconv.Atoi(u)
	gid, err2 := strconv.Atoi(g)
	if err1 != nil || err2 != nil || uid <= 0 || gid < 0 {
		return nobody, 65534, 65534
	}
	return fmt.Sprintf("%d:%d", uid, gid), uid, gid
}

// setImage applies the image's configuration.
func (s *spec) setImage(img image) error {
	s.image = img
	var uid, gid int
	s.user, uid, gid = userOf(img.user)
	for v := range img.volumes {
		v = path.Clean("/" + v)
		if v != tmpInside && v != modelInside && v != path.Dir(socketInside) {
			s.volumes = append(s.volumes, v)
		}
	}
	slices.Sort(s.volumes)
	return checkDir(s.launch, uid, gid)
}

// checkDir checks that the container's user can read the model's directory, and the files in it that the command names.
// Parent directories do not matter, because the engine mounts this one.
func checkDir(l containers.Launch, uid, gid int) error {
	if l.Dir == "" {
		return nil
	}
	if !filepath.IsAbs(l.Dir) {
		return launchErrorf(os.ErrInvalid, "the model's directory %q: expected an absolute path", l.Dir)
	}
	info, err := os.Stat(l.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return launchErrorf(err, "the model's directory %s does not exist: was it moved or deleted?", l.Dir)
	case err != nil:
		return launchErrorf(err, "the model's directory %s cannot be used: %v", l.Dir, err)
	case !info.IsDir():
		return launchErrorf(os.ErrInvalid, "the model's directory %s is not a directory", l.Dir)
	case !grants(l.Dir, info, uid, gid, 0o5):
		return launchErrorf(os.ErrPermission, "the model's directory %s cannot be read by the container's user %d:%d (its mode is %#o): chmod -R a+rX %s", l.Dir, uid, gid, info.Mode().Perm(), l.Dir)
	}
	for _, word := range l.Command {
		if !filepath.IsLocal(word) {
			continue
		}
		file := filepath.Join(l.Dir, word)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && !grants(file, info, uid, gid, 0o4) {
			return launchErrorf(os.ErrPermission, "%s cannot be read by the container's user %d:%d (its mode is %#o): chmod a+r %s", file, uid, gid, info.Mode().Perm(), file)
		}
	}
	return nil
}

// grants reports whether a file's mode gives a user these rights. If the file has an access control list, the mode does
// not decide, and it returns true.
func grants(file string, info os.FileInfo, uid, gid int, rights os.FileMode) bool {
	mode := info.Mode().Perm()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		switch {
		case int(st.Uid) == uid:
			mode >>= 6
		case int(st.Gid) == gid:
			mode >>= 3
		}
	}
	if mode&rights == rights {
		return true
	}
	n, err := syscall.Getxattr(file, "system.posix_acl_access", nil)
	return err == nil && n > 0
}

// options returns the request for the container. It withholds everything that a replica does not need.
func (s *spec) options() client.ContainerCreateOptions {
	l := s.launch
	cfg := &container.Config{
		Image: cmp.Or(s.image.ref, l.Image), User: s.user, Env: s.env, Labels: s.labels,
		AttachStdout: true, AttachStderr: true,
		StopSignal:  "SIGTERM",
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // the gateway watches the worker itself, and a check would run beside the replica
	}
	if len(s.command) > 0 { // replaces the image's entry point, too
		cfg.Entrypoint, cfg.Cmd = s.command[:1], s.command[1:]
	}
	host := &container.HostConfig{
		NetworkMode:    "none",
		IpcMode:        container.IPCModePrivate,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:      container.LogConfig{Type: "none"}, // the gateway keeps the output
		Tmpfs:          map[string]string{tmpInside: tmpOptions},
		ShmSize:        shmBytes,
		Init:           &s.init,
		Resources:      s.resources(),
		Mounts:         []mount.Mount{{Type: mount.TypeBind, Source: s.socket, Target: socketInside, ReadOnly: true}},
	}
	if l.Dir != "" {
		cfg.WorkingDir = modelInside
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: l.Dir, Target: modelInside, ReadOnly: true,
			BindOptions: &mount.BindOptions{NonRecursive: !s.recursive, Propagation: mount.PropagationRPrivate}})
	}
	for _, v := range s.volumes { // otherwise the engine makes them on the disk, without a bound
		host.Tmpfs[v] = tmpOptions
	}
	return client.ContainerCreateOptions{Name: s.name, Config: cfg, HostConfig: host}
}

func (s *spec) resources() container.Resources {
	limits := s.launch.Limits
	pids := int64(limits.PIDs)
	if pids <= 0 {
		pids = defaultPIDs
	}
	res := container.Resources{
		PidsLimit: &pids, NanoCPUs: limits.CPUMillis * 1e6,
		Memory: s.memory, MemorySwap: s.memory, // no additional swap: a replica that swaps answers nothing in time
		Ulimits: []*container.Ulimit{{Name: "core"}}, // a core dump would hold clients' data
	}
	if n := int64(limits.OpenFiles); n > 0 {
		res.Ulimits = append(res.Ulimits, &container.Ulimit{Name: "nofile", Soft: n, Hard: n})
	}
	if n := int64(limits.DataBytes); n > 0 {
		res.Ulimits = append(res.Ulimits, &container.Ulimit{Name: "data", Soft: n, Hard: n})
	}
	if len(s.gpus) > 0 {
		res.DeviceRequests = []container.DeviceRequest{{DeviceIDs: s.gpus, Capabilities: [][]string{{"gpu"}}}}
	}
	return res
}
