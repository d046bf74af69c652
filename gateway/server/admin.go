package server

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"
	hertz "github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/network/standard"
	"github.com/cloudwego/hertz/pkg/protocol/suite"
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// newAdmin makes the server of the admin port. It uses Hertz's standard transport, which can stream followed logs; latency does not
// matter here. If tokens are required, metrics, health, the description and the page that shows it work without one, for scrapers and probes.
func (s *Server) newAdmin(ln *adminListener) *hertz.Hertz {
	options := ln.security.options(s.log)
	options.AllowedHosts = s.hosts
	settings := []config.Option{
		hertz.WithListener(ln), hertz.WithHostPorts(ln.Addr().String()), hertz.WithTransport(standard.NewTransporter),
		hertz.WithExitWaitTime(0), hertz.WithDisablePrintRoute(true), hertz.WithSenseClientDisconnection(true),
		hertz.WithHandleMethodNotAllowed(true), hertz.WithRedirectTrailingSlash(false),
	}
	if c := ln.security.certificate; c != nil {
		settings = append(settings, hertz.WithTLS(c.TLS("http/1.1")))
	}
	h := hertz.New(settings...)
	h.Name = "xebec"
	h.Use(http.Middleware(admin.MaxBodyBytes, s.bodies, admin.Refuse, s.panicked("admin")), func(_ context.Context, c *app.RequestContext) {
		select {
		case <-s.Superseded(): // the next request of this client is for the process that has taken over
			c.SetConnectionClose()
		default:
		}
	})
	limits := s.cfg.limits()
	limits.BodyBytes = admin.MaxBodyBytes
	h.AddProtocol(suite.HTTP1, &http.Edge{
		Limits: limits, Bodies: s.bodies, Refusals: &s.refusals.admin, Refuse: admin.Refuse, TLS: ln.security.certificate != nil,
	})
	options.Unread = s.declared.Unread
	options.Ended = func() error {
		if s.emptied.Load() {
			return api.Errorf(api.ShuttingDown, "the gateway is stopping: ask again when it runs again")
		}
		return nil
	}
	if s.snapshots != nil && s.snapshots.Root() != "" {
		options.Uploads = uploads{s.snapshots}
	}
	admin.Register(h, control{s.declared, s.status, s.learning, s.host}, options)
	scrape := obs.NewScrape(s.status.Read)
	h.GET("/metrics", options.Public(func(_ context.Context, c *app.RequestContext) {
		body, contentType, err := scrape.Render()
		if err != nil {
			admin.Refuse(c, api.Errorf(api.Internal, "the metrics cannot be rendered: %w", err), 500)
			return
		}
		c.Data(200, contentType, body)
	}))
	h.GET("/openapi.yaml", options.Public(http.Handler(http.Description())))
	h.GET("/docs", options.Public(http.Handler(http.DocsPage())))
	h.GET("/", options.Public(http.Handler(dialect.Alive)))
	h.GET("/healthz", options.Public(func(_ context.Context, c *app.RequestContext) { c.JSON(200, map[string]bool{"live": true}) }))
	h.GET("/readyz", options.Public(func(_ context.Context, c *app.RequestContext) {
		var r api.Readiness
		status := 200
		if r.Ready, r.Reason = s.Ready(); !r.Ready {
			status = 503
		}
		if c.QueryArgs().Has("verbose") {
			r.Problems, r.Upgrade = s.Problems(), s.Upgrade()
		}
		c.JSON(status, r)
	}))
	http.CompleteMethods(h, admin.NoRoute, admin.Refuse)
	return h
}
