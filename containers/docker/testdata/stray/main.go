// Command stray is run by the tests of package docker in containers, beside real workers: it tests the restrictions
// from inside.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch word := os.Args[1]; word {
	case "walls":
		walls()
	case "spy":
		spy()
	case "daemonize":
		daemonize(os.Args[2])
	case "sleep": // until SIGTERM
		fmt.Println("asleep")
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		<-stop
		fmt.Println("asked to end")
		os.Exit(7)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		forever()
	case "bomb":
		bomb()
	case "eat":
		var eaten [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			eaten = append(eaten, b)
			fmt.Fprintln(os.Stderr, len(eaten), "MiB")
		}
	case "talk": // N lines on each stream, and an end without a line feed
		n, _ := strconv.Atoi(os.Args[2])
		for i := range n {
			fmt.Printf("out %d %s\n", i, strings.Repeat("x", 100))
			fmt.Fprintf(os.Stderr, "err %d %s\n", i, strings.Repeat("y", 100))
		}
		fmt.Print("the end of out")
		fmt.Fprint(os.Stderr, "the end of err")
	case "count": // a line every 20 ms
		for i := 0; ; i++ {
			fmt.Println("count", i)
			time.Sleep(20 * time.Millisecond)
		}
	case "exit":
		code, _ := strconv.Atoi(os.Args[2])
		os.Exit(code)
	}
}

// forever blocks without looking like a deadlock to the Go runtime.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// walls prints one line for each restriction: what was tried, and the result.
func walls() {
	say := func(what string, err error) { fmt.Printf("%s: %v\n", what, err) }
	write := func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }
	say("write /", write("/x"))
	say("write the program's directory", write("/usr/x"))
	say("write /model", write("/model/x"))
	say("write the socket's directory", write("/run/xebec/x"))
	say("write /tmp", write("/tmp/x"))
	data, err := os.ReadFile("greeting")
	say("read the model", err)
	fmt.Printf("the model says: %s\n", data)
	say("run from /tmp", func() error {
		program, _ := os.ReadFile("/stray")
		_ = os.WriteFile("/tmp/stray", program, 0o755)
		return exec.Command("/tmp/stray", "exit", "0").Run()
	}())
	ifs, _ := net.Interfaces()
	var up []string
	for _, i := range ifs {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			up = append(up, i.Name)
		}
	}
	fmt.Printf("networks: %d\n", len(up))
	_, err = net.DialTimeout("tcp", "192.0.2.1:80", time.Second)
	say("connect", err)
	say("mount", syscall.Mount("none", "/tmp", "tmpfs", 0, ""))
	say("become root", syscall.Setuid(0))
	fmt.Printf("ids: %d:%d\n", os.Getuid(), os.Getgid())
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") || strings.HasPrefix(line, "Seccomp:") {
			fmt.Println(strings.Join(strings.Fields(line), " "))
		}
	}
	for _, name := range []string{"XEBEC_SOCKET", "XEBEC_GPUS", "CUDA_VISIBLE_DEVICES", "TWICE"} {
		value, set := os.LookupEnv(name)
		fmt.Printf("%s=%s (%v)\n", name, value, set)
	}
	wd, _ := os.Getwd()
	fmt.Println("in", wd)
	entries, _ := os.ReadDir("/run/xebec")
	fmt.Println("sockets:", len(entries))
	say("below a mount", write("/model/mounted/x"))
	baked, err := os.ReadFile("/baked/weights")
	fmt.Printf("baked: %s %v\n", baked, err)
	say("write a volume", write("/baked/x"))
	var fs syscall.Statfs_t
	_ = syscall.Statfs("/baked", &fs)
	fmt.Printf("a volume holds %d MiB\n", int64(fs.Blocks)*fs.Bsize>>20)
	var lim syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_CORE, &lim)
	fmt.Println("core:", lim.Max)
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim)
	fmt.Println("files:", lim.Max)
	fill, err := os.Create("/tmp/fill")
	var n int64
	for block := make([]byte, 1<<20); err == nil; {
		if _, err = fill.Write(block); err == nil {
			n++
		}
	}
	fmt.Printf("filled %d MiB of /tmp: %v\n", n, err)
}

// bomb starts copies of itself until that fails, and prints their number.
func bomb() {
	var n int
	for {
		c := exec.Command("/stray", "deaf")
		if err := c.Start(); err != nil {
			fmt.Printf("%d copies, then: %v\n", n, err)
			forever()
		}
		n++
	}
}
