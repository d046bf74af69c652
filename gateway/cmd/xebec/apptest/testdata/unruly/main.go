// Command unruly is a model that the tests put into containers, because it does what no model should. It takes bytes and answers them as
// they came, unless they are
//
//	eat     it takes memory until it is killed
//	bomb    it starts processes until that is refused, and answers how many there were and why it ended
//
// It begins with how many files it finds at /model. Its argument says more: "stays" ends neither on SIGTERM nor when its gateway is gone, "mute" speaks to nobody at all, and "ends" says
// so and ends.
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

// forever does not look like a deadlock to the Go runtime.
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
