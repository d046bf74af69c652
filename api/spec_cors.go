package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CORSSpec says which web pages may call a function from a browser. Without it no page of another origin may.
type CORSSpec struct {
	// Origins are the origins of the pages, "https://app.example.com", or "*" for every page.
	Origins []string `json:"origins" need:"the origins of the pages that may call the function, or \"*\""`
	// Credentials lets pages send the browser's cookies and certificates, which a proxy in front of the gateway may ask
	// for. The gateway itself looks at neither.
	Credentials bool `json:"credentials,omitempty"`
	// Headers are request headers that pages may send beside those that the gateway reads itself.
	Headers []string `json:"headers,omitempty"`
	// MaxAge is how long a browser may remember the answer to a preflight.
	MaxAge time.Duration `json:"max_age,omitempty" field:"positive"`
}

// Limits of a function's cors.
const (
	// maxOrigins bounds a list that is searched for each request of a page.
	maxOrigins         = 64  //xebec:limit `cors.origins`
	maxOriginBytes     = 512 //xebec:limit an origin
	maxCORSHeaders     = 64  //xebec:limit `cors.headers`
	maxHeaderNameBytes = 128 //xebec:limit a header of `cors.headers`
	anyOrigin          = "*"
	expectedOrigins    = `expected "*", or a scheme and a host, with the port if it is not the scheme's: "https://app.example.com"`
	// DefaultCORSMaxAge saves most preflights, and a change of the declaration takes effect soon.
	DefaultCORSMaxAge = 10 * time.Minute
	MaxCORSMaxAge     = 24 * time.Hour //xebec:limit `cors.max_age`
)

// withDefaults returns a copy, nil for nil.
func (c *CORSSpec) withDefaults() *CORSSpec {
	if c == nil {
		return nil
	}
	full := *c
	if full.MaxAge == 0 {
		full.MaxAge = DefaultCORSMaxAge
	}
	return &full
}

func (c *CORSSpec) validate(e *FieldErrors) {
	if c == nil {
		return
	}
	switch {
	case len(c.Origins) == 0:
		e.add("cors.origins", "is empty: %s", expectedOrigins)
	case len(c.Origins) > maxOrigins:
		e.add("cors.origins", "has %d origins: expected at most %d, or \"*\"", len(c.Origins), maxOrigins)
		return
	}
	for i, origin := range c.Origins {
		at := fmt.Sprintf("cors.origins[%d]", i)
		switch {
		case !validOrigin(origin):
			e.add(at, "%q is not an origin as a browser sends it: %s", clipped(origin), expectedOrigins)
		case slices.Contains(c.Origins[:i], origin):
			e.add(at, "%q is there twice", origin)
		}
	}
	if c.Credentials && slices.Contains(c.Origins, anyOrigin) {
		e.add("cors.credentials", "is not for every page: browsers refuse credentials with the origin \"*\"; name the origins")
	}
	if len(c.Headers) > maxCORSHeaders {
		e.add("cors.headers", "has %d headers: expected at most %d", len(c.Headers), maxCORSHeaders)
		return
	}
	for i, name := range c.Headers {
		if name == "" || len(name) > maxHeaderNameBytes || strings.Trim(name, headerCharacters) != "" {
			e.add(fmt.Sprintf("cors.headers[%d]", i), "%q is not the name of a header: expected letters, digits and -", clipped(name))
		}
	}
	if c.MaxAge <= 0 || c.MaxAge > MaxCORSMaxAge {
		e.add("cors.max_age", "%s: expected more than 0 and at most %s", c.MaxAge, MaxCORSMaxAge)
	}
}

// headerCharacters are fewer than RFC 9110 permits, and those of all headers in use.
const headerCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func clipped(s string) string { return s[:min(len(s), 80)] }

// validOrigin reports whether s is "*" or an origin as browsers serialise it: lower case, no path, no default port. Only
// such a text is ever equal to a request's Origin. "null" is the origin of every sandboxed page.
func validOrigin(s string) bool {
	if s == anyOrigin {
		return true
	}
	scheme, rest, ok := strings.Cut(s, "://")
	host := rest
	if end := strings.LastIndexByte(rest, ':'); end > strings.LastIndexByte(rest, ']') {
		port := rest[end+1:]
		host = rest[:end]
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || scheme == "http" && n == 80 || scheme == "https" && n == 443 {
			return false
		}
	}
	name := strings.Trim(host, lowerCharacters+".-_") == ""
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = strings.Trim(host[1:len(host)-1], "0123456789abcdef:.") == "" && len(host) > 2
	}
	return ok && len(s) <= maxOriginBytes && scheme != "" && strings.Trim(scheme, lowerCharacters+"+.-") == "" && host != "" && name
}

// lowerCharacters are the letters and digits of an origin.
const lowerCharacters = "abcdefghijklmnopqrstuvwxyz0123456789"

// Allows reports whether a page of this origin may call the function. every is true if every page may.
func (c *CORSSpec) Allows(origin string) (allowed, every bool) {
	if c == nil || origin == "" {
		return false, false
	}
	if slices.Contains(c.Origins, origin) {
		return true, false
	}
	every = slices.Contains(c.Origins, anyOrigin)
	return every, every
}
