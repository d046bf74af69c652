package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	hosts, err := ParseHosts([]string{"Models.example.com", "*.app.example", "10.0.0.5", "::1"})
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]bool{
		"models.example.com": true, "MODELS.example.com:443": true, "models.example.com.": true, "models.example.com.:80": true,
		"a.app.example": true, "a.b.app.example:8080": true, "10.0.0.5": true, "10.0.0.5:1337": true, "[::1]:1337": true, "[::1]": true,
		"example.com": false, "x.models.example.com": false, "app.example": false, ".app.example": false, "evilapp.example": false,
		"app.example.evil": false, "10.0.0.50": false, "": false, ":1337": false, "*.app.example.evil": false,
	} {
		if got := hosts.Has(header); got != want {
			t.Errorf("%q: got %v", header, got)
		}
	}
	if Hosts(nil).Has("localhost") {
		t.Error("no hosts have a host")
	}
}

func TestParseHosts(t *testing.T) {
	for _, bad := range []string{"", "*", "*.", "a:80", "https://a", "a..b", ".a", "a/b", "a b", "a*", "*.*.a", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a"} {
		if hosts, err := ParseHosts([]string{"ok.example", bad}); err == nil {
			t.Errorf("%q is taken, as %q", bad, hosts)
		} else if !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("%q: the error does not name it: %v", bad, err)
		}
	}
	many := slices.Repeat([]string{"a"}, MaxHosts+1)
	if _, err := ParseHosts(many); err == nil {
		t.Errorf("%d hosts are taken", len(many))
	}
	if _, err := ParseHosts(many[1:]); err != nil {
		t.Error(err)
	}
}

func TestLoopback(t *testing.T) {
	for header, want := range map[string][2]bool{
		"localhost": {true, false}, "LocalHost:1338": {true, false}, "127.0.0.1": {true, true}, "127.9.9.9:1": {true, true}, "[::1]:1338": {true, true}, "::1": {true, true},
		"10.0.0.5": {false, true}, "[2001:db8::1]:80": {false, true}, "example.com": {}, "localhost.example.com": {}, "127.0.0.1.example.com": {}, "": {}, "evil": {},
	} {
		if got := [2]bool{Loopback(header), Address(header)}; got != want {
			t.Errorf("%q: loopback and address are %v, want %v", header, got, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		origin, host string
		want         bool
	}{
		{"http://localhost:1337", "localhost:1337", true}, {"https://App.example", "app.example", true}, {"https://app.example", "app.example:443", true},
		{"http://app.example", "app.example:80", true}, {"http://[::1]:1337", "[::1]:1337", true}, {"http://app.example:8080", "app.example:8080", true},
		{"http://app.example", "app.example:1337", false}, {"http://localhost:3000", "localhost:1337", false}, {"https://evil.example", "app.example", false},
		{"null", "app.example", false}, {"", "", false}, {"file://", "", false}, {"http://", "", false}, {"%", "%", false}, {"app.example", "app.example", false},
		{"http://app.example:443", "app.example", false},
	} {
		if got := SameOrigin(c.origin, c.host); got != c.want {
			t.Errorf("origin %q, host %q: got %v", c.origin, c.host, got)
		}
	}
}

func TestCrossSite(t *testing.T) {
	for site, want := range map[string]bool{"": false, "none": false, "same-origin": false, "same-site": true, "cross-site": true, "anything": true} {
		if got := CrossSite(site); got != want {
			t.Errorf("%q: got %v", site, got)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	hosts, _ := ParseHosts([]string{"*.example.com"})
	f.Add("https://a.example.com:443", "a.example.com")
	f.Add("http://[::1", "[::1]:1")
	f.Fuzz(func(t *testing.T, origin, host string) {
		if hosts.Has(host) && Address(host) {
			t.Errorf("%q is a name and an address", host)
		}
		if SameOrigin(origin, host) && host == "" {
			t.Errorf("%q is the origin of no host", origin)
		}
	})
}
