package server

import (
	"context"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	hertz "github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/network/standard"
	"github.com/xebec-serving/xebec/gateway"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// newAdmin makes the server of the admin port. It uses Hertz's standard transport: followed logs are streamed, and nothing here
// is in a hurry.
func (s *Server) newAdmin(ln net.Listener) *hertz.Hertz {
	h := hertz.New(
		hertz.WithListener(ln), hertz.WithHostPorts(ln.Addr().String()), hertz.WithTransport(standard.NewTransporter),
		hertz.WithMaxRequestBodySize(admin.MaxBodyBytes), hertz.WithMaxHeaderBytes(64<<10), hertz.WithReadTimeout(30*time.Second),
		hertz.WithIdleTimeout(time.Minute), hertz.WithExitWaitTime(0), hertz.WithDisablePrintRoute(true), hertz.WithSenseClientDisconnection(true),
	)
	h.Name = "xebec"
	h.Use(gateway.RefuseAmbiguousFraming)
	admin.Register(h, s)
	h.NoRoute(admin.NoRoute)
	scrape := obs.NewScrape(s.Read)
	h.GET("/metrics", func(_ context.Context, c *app.RequestContext) {
		body, contentType, err := scrape.Render()
		if err != nil {
			c.String(500, "%v", err)
			return
		}
		c.Data(200, contentType, body)
	})
	h.GET("/healthz", func(_ context.Context, c *app.RequestContext) { c.JSON(200, map[string]bool{"live": true}) })
	h.GET("/readyz", func(_ context.Context, c *app.RequestContext) {
		ok, why := s.ready()
		status := 200
		if !ok {
			status = 503
		}
		c.JSON(status, map[string]any{"ready": ok, "reason": why})
	})
	return h
}
