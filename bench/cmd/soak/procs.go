package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is a line of the process table.
type process struct {
	pid, parent int
	name        string
	state       byte
}

// processes reads the process table. Processes that end meanwhile are left out.
func processes() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		if p, ok := parseStat(pid, string(text)); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// parseStat reads "PID (NAME) STATE PARENT …". A name may contain spaces and parentheses.
func parseStat(pid int, text string) (process, bool) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 2 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return process{pid: pid, parent: parent, name: text[open+1 : end], state: fields[0][0]}, err == nil
}

// below returns the processes that descend from pid.
func below(all []process, pid int) []process {
	in := map[int]bool{pid: true}
	var out []process
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if in[p.parent] && !in[p.pid] {
				in[p.pid], grew = true, true
				out = append(out, p)
			}
		}
	}
	return out
}

// descendants returns the processes below pid with this name, of which the kernel keeps 15 bytes.
func descendants(pid int, name string) ([]int, error) {
	all, err := processes()
	name = name[:min(len(name), 15)]
	var out []int
	for _, p := range below(all, pid) {
		if p.name == name {
			out = append(out, p.pid)
		}
	}
	return out, err
}

func children(pid int) ([]int, error) {
	all, err := processes()
	var out []int
	for _, p := range all {
		if p.parent == pid && p.state != 'Z' {
			out = append(out, p.pid)
		}
	}
	return out, err
}

// descriptors counts the open files of a process.
func descriptors(pid int) (int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	return len(entries), err
}

// segments counts the mappings of shared memory that belong to no file.
func segments(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	return strings.Count(string(text), " /memfd:"), err
}

func dialable(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
