package process

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// This file is the reaper's side of a launch in a sandbox: it starts the launcher (sandbox.go) in new namespaces and
// follows what that reports.

// spaces are the namespaces of an isolated replica.
const spaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC

// launching is a launch whose launcher has not reported yet.
type launching struct {
	q     request
	files []uintptr // the replica's stdin, stdout and stderr: its own descriptors
	more  []int     // to be closed with them
}

// close closes the descriptors, once.
func (l *launching) close() {
	closeAll(l.more)
	l.more = nil
}

// isolate starts a launch through a launcher. It answers later, from another goroutine.
func (r *reaper) isolate(q request, fds []int) {
	l := &launching{q: q, files: []uintptr{uintptr(r.null)}}
	for _, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			l.close()
			r.mu.Lock()
			defer r.mu.Unlock()
			r.answer(failure(q.ID, "output", err))
			return
		}
		l.files, l.more = append(l.files, uintptr(own)), append(l.more, own)
	}
	r.startLauncher(l)
}

// startLauncher forks a launcher. If the machine refuses namespaces it forks one without. It owns l.
func (r *reaper) startLauncher(l *launching) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := l.q.Sandbox
	if s.Namespaces && r.noNamespaces != nil {
		s.without(r.noNamespaces)
	}
	w, ctl, err := r.forkLauncher(l)
	if err != nil && s.Namespaces {
		r.noNamespaces = fmt.Errorf("clone: %w", err)
		s.without(r.noNamespaces)
		if !s.Strict {
			w, ctl, err = r.forkLauncher(l)
		}
	}
	if err != nil {
		p := failure(l.q.ID, "isolation", err)
		if s.Strict && len(s.Missing) > 0 {
			p.Step, p.Text = stepLayer, s.Missing[0]
		}
		r.answer(p)
		l.close()
		return
	}
	r.launched++
	r.more.Signal()
	r.byPID[w.pid], r.byID[w.id] = w, w
	go r.follow(w, l, ctl)
}

// without takes the namespaces out of a sandbox, for a reason.
func (s *sandbox) without(why error) {
	s.Namespaces, s.UID = false, 0
	s.Missing = append(s.Missing, fmt.Sprintf("It has no namespaces of its own (%v): it sees the host's processes and /tmp. "+
		"Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces), or run the gateway where they are.", why))
}

// forkLauncher forks a launcher and sends it its request. The caller holds r.mu.
func (r *reaper) forkLauncher(l *launching) (*worker, int, error) {
	ctl, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	defer unix.Close(ctl[1])
	q, s := l.q, l.q.Sandbox
	attr := &syscall.ProcAttr{
		Dir: "/", Files: append(l.files[:3:3], uintptr(ctl[1])),
		// The marker is there from the start, so that no part of the launch is missed when the reaper ends.
		Env: append(os.Environ(), markerName+"="+q.Marker, fmt.Sprintf("%s=%d", envUID, os.Geteuid()), fmt.Sprintf("%s=%d", envGID, os.Getegid())),
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if len(l.files) > 3 { // a zygote's end of its socket
		attr.Files = append(attr.Files, l.files[3])
	}
	if s.Namespaces {
		attr.Sys.Cloneflags = spaces
		if !s.Network {
			attr.Sys.Cloneflags |= unix.CLONE_NEWNET
		}
		if os.Geteuid() == 0 {
			ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
			if s.UID != 0 {
				ids = append(ids, syscall.SysProcIDMap{ContainerID: s.UID, HostID: s.UID, Size: 1})
			}
			attr.Sys.UidMappings, attr.Sys.GidMappings, attr.Sys.GidMappingsEnableSetgroups = ids, ids, true
		} else {
			// This process is not dumpable, so it may not write the maps; the launcher does, with these capabilities of
			// the new user namespace.
			for c := range uintptr(unix.CAP_AUDIT_READ + 1) {
				attr.Sys.AmbientCaps = append(attr.Sys.AmbientCaps, c)
			}
		}
	}
	if err := unix.SetsockoptInt(ctl[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		unix.Close(ctl[0])
		return nil, -1, err
	}
	pid, err := r.fork("/proc/self/exe", []string{launcherName}, attr, q)
	if err != nil {
		unix.Close(ctl[0])
		return nil, -1, err
	}
	w := &worker{id: q.ID, pid: pid, marker: q.Marker, autogroup: -1, groups: q.Groups, quiet: q.Quiet, followed: make(chan struct{})}
	if step, err := r.confine(pid, request{Groups: q.Groups}); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
		unix.Close(ctl[0])
		return nil, -1, fmt.Errorf("%s: %w", step, err)
	}
	return w, ctl[0], nil
}

// follow sends a launcher its request and answers what it reports, until the replica has ended. It owns l and ctl.
func (r *reaper) follow(w *worker, l *launching, ctl int) {
	defer close(w.followed)
	defer unix.Close(ctl)
	defer l.close()
	var started *verdict
	var lead int
	err := sendFrame(ctl, l.q)
	for err == nil {
		var v verdict
		var with ancillary
		if v, with, err = receiveVerdict(ctl); err != nil {
			break
		}
		if started != nil && v.Step != stepExited && lead != 0 && l.q.Sandbox.Namespaces {
			_ = unix.Kill(w.pid, unix.SIGKILL) // it is damaged; its end is that of the launch
			return
		}
		switch v.Step {
		case stepStarted:
			if l.q.Sandbox.Namespaces {
				l.close()
				r.begun(w, with.pid, v, l.q.Sandbox.Control)
			}
			started, lead = &v, with.pid
		case stepExited:
			r.exitedInside(w, v)
		case stepNamespace:
			r.mu.Lock()
			r.noNamespaces = fmt.Errorf("%s", v.Error)
			delete(r.byID, w.id) // its end is not that of the launch
			w.id = 0
			r.mu.Unlock()
			if !l.q.Sandbox.Strict {
				again := *l
				l.more = nil
				r.startLauncher(&again)
				return
			}
			l.q.Sandbox.without(r.noNamespaces)
			r.refuse(w, l.q.ID, reply{Step: stepLayer, Text: l.q.Sandbox.Missing[0]})
			return
		default:
			r.refuse(w, l.q.ID, reply{Step: v.Step, Errno: v.Errno, Text: v.Error})
			return
		}
	}
	switch {
	case started == nil: // it has ended or was killed, without a word
		how, isKilled := endOf(w.pid)
		p := reply{Step: "isolation", Text: "its launcher ended before the replica had begun: " + how}
		if isKilled {
			p.Step = stepLost
		}
		r.refuse(w, l.q.ID, p)
	case lead == 0 || !l.q.Sandbox.Namespaces: // the socket was closed by exec
		l.close()
		r.begun(w, w.pid, *started, false)
	}
}

// endOf says how a child ends, and whether SIGKILL ends it, and leaves it unreaped.
func endOf(pid int) (how string, isKilled bool) {
	info, err := peek(unix.P_PID, pid)
	exit := containers.Exit{Code: int(info.status)}
	switch {
	case err != nil:
		return err.Error(), false
	case info.code != cldExited:
		exit = containers.Exit{Code: -1, Signal: int(info.status)}
	}
	return exit.String(), exit.Signal == int(unix.SIGKILL)
}

// exitedInside takes the end of a replica, of a zygote, or of what a zygote has forked.
func (r *reaper) exitedInside(w *worker, v verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case v.PID != 0:
		r.ended(w, v.PID, v.Status)
	case w.forked != nil: // its launcher may stay for long
		delete(r.byID, w.id)
		w.closeAutogroup()
		r.answer(reply{Op: opExited, ID: w.id, PID: w.lead, Status: v.Status})
		w.id = 0
	default:
		w.status = &v.Status
	}
	if w.forked != nil && w.id == 0 && len(w.forked) == 0 {
		_ = unix.Kill(w.pid, unix.SIGKILL) // zygote and forks have ended, so nothing else in their pid namespace is needed
	}
}

// begun answers a launch whose replica runs.
func (r *reaper) begun(w *worker, lead int, v verdict, zygote bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.id == 0 {
		return
	}
	w.lead = lead
	if st, ok := readStat(lead); ok && st.ppid == w.pid { // else it has ended, and this may be another one
		w.first = st
	}
	if zygote {
		w.forked = map[int]*worker{}
	}
	if w.quiet {
		r.lower(w)
	}
	r.answer(reply{Op: opStarted, ID: w.id, PID: lead, Quiet: w.low || w.autogroup >= 0, Layers: v.Layers, Missing: v.Missing})
}

// refuse answers a launch that has failed.
func (r *reaper) refuse(w *worker, id uint64, p reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, id)
	w.id = 0
	_ = unix.Kill(w.pid, unix.SIGKILL)
	p.Op, p.ID = opFailed, id
	r.answer(p)
}

func receiveVerdict(fd int) (v verdict, with ancillary, err error) {
	body, with, err := receiveFrame(fd)
	if err != nil {
		return v, with, err
	}
	closeAll(with.fds) // it has none to send
	return v, with, json.Unmarshal(body, &v)
}
