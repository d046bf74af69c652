// Command unruly is a faulty model that the tests run in containers. It echoes its input, except for
//
//	eat     it allocates memory until it is killed
//	bomb    it starts processes until one is refused, and answers their number and the error
//
// At its start it prints the number of files in /model. Its argument selects another fault: "stays" ends neither on SIGTERM nor when its
// gateway has ended, "mute" never connects to the gateway, and "ends" prints an error and ends.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

func main() {
	word := ""
	if len(os.Args) > 1 {
		word = os.Args[1]
	}
	switch word {
	case "mute":
		fmt.Println("saying nothing")
		forever()
	case "ends":
		log.Fatal("no weights in sight")
	}
	files, err := os.ReadDir("/model")
	fmt.Printf("at /model there are %d files (%v)\n", len(files), err)
	if err := xebec.Serve(predict); err != nil && word != "stays" {
		log.Fatal(err)
	}
	if word == "stays" {
		fmt.Println("staying")
		forever()
	}
}

// forever sleeps, because the Go runtime would report an empty select as a deadlock.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

func predict(_ context.Context, b *xebec.Batch) error {
	for i := range b.Len() {
		input := b.Bytes("input", i)
		switch string(input) {
		case "eat":
			eat()
		case "bomb":
			b.SetBytes("output", i, []byte(bomb()))
		default:
			b.SetBytes("output", i, input)
		}
	}
	return nil
}

func eat() {
	for eaten := [][]byte{}; ; {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		eaten = append(eaten, b)
	}
}

func bomb() string {
	for n := 0; ; n++ {
		if err := exec.Command("/proc/self/exe", "mute").Start(); err != nil {
			return fmt.Sprintf("%d processes, then: %v", n, err)
		}
	}
}
