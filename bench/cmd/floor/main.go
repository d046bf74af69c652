// Command floor does the least that a Hertz server can do for a predict request: it reads the body and answers fixed bytes, those that Xebec
// answers to the same request. The difference to Xebec is Xebec's own cost.
//
// It uses the same transport (netpoll), the same number of Ps and the same limits as the gateway, so that only the path between the body and
// the answer differs. bench/cmd/compare starts it with an answer that it copied from a running gateway.
//
//	floor -listen 127.0.0.1:18000 -answer answer.json
//
// With -relay it also sends a few bytes to another process and waits for them to come back, before each answer: what every server pays whose model
// is another process.
//
// answer.json: {"status": 200, "server": "xebec", "fields": [["Content-Type", "application/json"]], "body": "…base64…"}
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network/netpoll"

	"github.com/xebec-serving/xebec/bench/internal/answer"
)

// The gateway's limits, see DefaultLimits in gateway/http/limits.go. A floor with other timeouts would arm other timers, and one that
// keeps no large body would allocate it for each request.
const (
	maxBodyBytes   = 64 << 20
	maxHeaderBytes = 64 << 10
	readTimeout    = 30 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 3 * time.Minute
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:18000", "address")
	file := flag.String("answer", "", "file with the answer to give, see the command's comment")
	relays := flag.Bool("relay", false, "ask another process before each answer")
	relayed := flag.Bool("relayed", false, "be that process")
	flag.Parse()
	if *relayed {
		return beRelayed()
	}
	data, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("-answer: %w", err)
	}
	var fixed answer.Answer
	if err := json.Unmarshal(data, &fixed); err != nil {
		return fmt.Errorf("-answer %s: %w", *file, err)
	}
	// Netpoll panics when it cannot bind. Our own listener returns an error instead.
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	hlog.SetLevel(hlog.LevelError)
	h := server.New(server.WithListener(listener), server.WithTransport(netpoll.NewTransporter),
		server.WithMaxRequestBodySize(maxBodyBytes), server.WithMaxKeepBodySize(maxBodyBytes), server.WithMaxHeaderBytes(maxHeaderBytes),
		server.WithReadTimeout(readTimeout), server.WithWriteTimeout(writeTimeout), server.WithIdleTimeout(idleTimeout), server.WithKeepAliveTimeout(idleTimeout),
		server.WithDisablePrintRoute(true), server.WithDisablePreParseMultipartForm(true), server.WithExitWaitTime(0))
	h.Name = fixed.Server
	ask := func() error { return nil }
	if *relays {
		if ask, err = relay(); err != nil {
			return err
		}
	}
	h.POST("/*path", func(_ context.Context, c *app.RequestContext) {
		if err := ask(); err != nil {
			c.String(500, "%v", err)
			return
		}
		_ = c.Request.Body() // in memory, as a predict handler needs it
		c.Response.SetStatusCode(fixed.Status)
		for _, f := range fixed.Fields {
			c.Response.Header.Set(f[0], f[1])
		}
		c.Response.SetBody(fixed.Body)
	})
	h.Spin()
	return nil
}
