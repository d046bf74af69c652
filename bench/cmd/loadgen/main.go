// Command loadgen sends one kind of request to a server repeatedly and prints the result as JSON.
//
//	loadgen -url http://127.0.0.1:1337/noop/predict -data '{"input": [1, 2, 3]}' -contains '"output":0' -c 64 -duration 10s
//	loadgen -url http://127.0.0.1:1337/noop/predict -zeros 3072 -rate 20000 -arrivals poisson
//
// Without -rate it is a closed loop: each connection sends the next request when it has the answer to the last one. With -rate it is an open
// loop, and latency counts from when a request was due. The exit status is 1 if an answer was missing, wrong or a default.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

func main() { runner.Main("loadgen", run) }

func run(ctx context.Context) error {
	target := flag.String("url", "http://127.0.0.1:1337/noop/predict", "target of the requests; the host is an IP address and a port")
	data := flag.String("data", "", "body")
	file := flag.String("file", "", "`file` with the body")
	zeros := flag.Int("zeros", 0, "body of this many zero bytes")
	contentType := flag.String("type", "", "content type (default application/json; application/octet-stream for -zeros)")
	contains := flag.String("contains", "", "`text` that every answer must contain")
	echo := flag.Bool("echo", false, "every answer must be the request's body")
	opts := loadgen.Options{}
	flag.IntVar(&opts.Connections, "c", 64, "connections")
	flag.IntVar(&opts.Threads, "threads", 1, "threads that share the connections")
	flag.Float64Var(&opts.Rate, "rate", 0, "requests a second of an open loop; 0: closed loop")
	arrivals := flag.String("arrivals", string(loadgen.Poisson), "of an open loop: poisson or constant")
	flag.Uint64Var(&opts.Seed, "seed", 1, "of Poisson arrivals")
	flag.DurationVar(&opts.Warmup, "warmup", 2*time.Second, "sent but not counted")
	flag.DurationVar(&opts.Duration, "duration", 10*time.Second, "measured, after the warm-up")
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	opts.Arrivals = loadgen.Arrivals(*arrivals)

	u, err := url.Parse(*target)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("-url %q: expected http://ADDRESS:PORT/PATH", *target)
	}
	body, kind, err := body(*data, *file, *zeros)
	if err != nil {
		return err
	}
	if *contentType != "" {
		kind = *contentType
	}
	request := loadgen.Request{Wire: loadgen.Render(u.Host, u.RequestURI(), kind, body)}
	if *contains != "" {
		request.Contains = []byte(*contains)
	}
	if *echo {
		request.Equals = body
	}
	opts.Addr, opts.Requests = u.Host, []loadgen.Request{request}

	result, err := loadgen.Run(ctx, opts)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return errors.Join(out.Encode(result), result.Clean())
}

func body(data, file string, zeros int) ([]byte, string, error) {
	switch {
	case file != "" && data != "", zeros > 0 && (file != "" || data != ""):
		return nil, "", errors.New("-data, -file and -zeros exclude each other")
	case file != "":
		b, err := os.ReadFile(file)
		return b, loadgen.Binary, err
	case zeros > 0:
		return make([]byte, zeros), loadgen.Binary, nil
	}
	return []byte(data), loadgen.JSON, nil
}
