package oip

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// What the protocol's extensions have and the gateway has not, and why.
const (
	noSystemMemory = "shared memory regions are not supported: a client that changes or shortens memory while the gateway reads it could end the gateway; send tensors in the request"
	noCudaMemory   = "CUDA shared memory is not supported: the gateway uses no device memory; send tensors in the request"
	noTraces       = "trace settings are not supported: requests pass their traceparent on to models, and the gateway keeps no traces of its own"
	noLogging      = "log settings are not read or changed through this port: `xebec serve --log-level` sets them"
)

// unsupportedRoutes are the routes that answer 501 and say why. A client that gets 404 would look for a model that is not there.
func (s *service) unsupportedRoutes() (routes []dialect.Route) {
	add := func(method, path, why string) {
		serve := func(x dialect.Exchange) { s.fails(x, api.Errorf(api.Unsupported, "%s", why)) }
		routes = append(routes, dialect.Route{Method: method, Path: path, Serve: serve})
	}
	for _, memory := range []struct{ path, why string }{{"/v2/systemsharedmemory", noSystemMemory}, {"/v2/cudasharedmemory", noCudaMemory}} {
		add("GET", memory.path+"/status", memory.why)
		add("GET", memory.path+"/region/{region}/status", memory.why)
		add("POST", memory.path+"/region/{region}/register", memory.why)
		add("POST", memory.path+"/region/{region}/unregister", memory.why)
		add("POST", memory.path+"/unregister", memory.why)
	}
	for _, method := range []string{"GET", "POST"} {
		add(method, "/v2/trace/setting", noTraces)
		add(method, "/v2/models/{model}/trace/setting", noTraces)
		add(method, "/v2/logging", noLogging)
	}
	return routes
}
