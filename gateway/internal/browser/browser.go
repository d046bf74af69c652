package browser

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// MaxHosts bounds a list of hosts: it is searched for each request of a browser.
const MaxHosts = 64 //xebec:limit `--allowed-hosts`

// Hosts are host names in lower case without ports. "*.example.com" means every name below example.com.
type Hosts []string

// ParseHosts checks a list of hosts.
func ParseHosts(list []string) (Hosts, error) {
	if len(list) > MaxHosts {
		return nil, fmt.Errorf("%d hosts: expected at most %d; *.example.com stands for all names below example.com", len(list), MaxHosts)
	}
	var hosts Hosts
	for _, given := range list {
		host := strings.ToLower(given)
		name := strings.TrimPrefix(host, "*.")
		if !validName(name) && net.ParseIP(host) == nil {
			return nil, fmt.Errorf("host %q: expected a name or an address without a port, such as models.example.com, *.example.com or 10.0.0.5", given)
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// validName reports whether s has the form of a DNS name.
func validName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// Has reports whether a Host header names one of the hosts.
func (h Hosts) Has(header string) bool {
	name := strings.ToLower(hostname(header))
	return slices.ContainsFunc(h, func(host string) bool {
		if below, wild := strings.CutPrefix(host, "*"); wild {
			return len(name) > len(below) && strings.HasSuffix(name, below)
		}
		return name == host
	})
}

// Loopback reports whether a Host header is localhost or a loopback address.
func Loopback(header string) bool {
	name := hostname(header)
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

// Address reports whether a Host header is an IP address. A name that was rebound never looks like one.
func Address(header string) bool { return net.ParseIP(hostname(header)) != nil }

// hostname returns a Host header without the port, without brackets, and without the dot that may end a name.
func hostname(header string) string {
	name, _, err := net.SplitHostPort(header)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.TrimSuffix(name, ".")
}

// SameOrigin reports whether a page of this origin lies on the host that its request names. The scheme is not compared:
// a proxy may have ended TLS.
func SameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	return strings.EqualFold(strings.TrimSuffix(u.Host, port), strings.TrimSuffix(host, port))
}

// CrossSite reports whether Sec-Fetch-Site says that a page of another origin sends the request.
func CrossSite(fetchSite string) bool {
	return fetchSite != "" && fetchSite != "none" && fetchSite != "same-origin"
}
