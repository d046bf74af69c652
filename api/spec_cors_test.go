package api

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCORS(t *testing.T) {
	for _, c := range []struct {
		cors CORSSpec
		want string
	}{
		{CORSSpec{Origins: []string{"https://app.example.com", "http://localhost:3000", "http://[::1]:3000", "https://10.0.0.5", "chrome-extension://abc"}}, ""},
		{CORSSpec{Origins: []string{"*"}, Headers: []string{"X-Tenant"}, MaxAge: time.Second}, ""},
		{CORSSpec{Origins: []string{"https://a.example"}, Credentials: true, MaxAge: MaxCORSMaxAge}, ""},
		{CORSSpec{}, `cors.origins: is empty: ` + expectedOrigins},
		{CORSSpec{Origins: []string{"https://a.example", "https://a.example"}}, `cors.origins[1]: "https://a.example" is there twice`},
		{CORSSpec{Origins: []string{"*"}, Credentials: true}, `cors.credentials: is not for every page: browsers refuse credentials with the origin "*"; name the origins`},
		{CORSSpec{Origins: []string{"*"}, Headers: []string{"A B"}}, `cors.headers[0]: "A B" is not the name of a header: expected letters, digits and -`},
		{CORSSpec{Origins: []string{"*"}, MaxAge: -1}, "cors.max_age: -1ns: expected more than 0 and at most 24h0m0s"},
		{CORSSpec{Origins: []string{"*"}, MaxAge: MaxCORSMaxAge + 1}, "cors.max_age: 24h0m0.000000001s: expected more than 0 and at most 24h0m0s"},
		{CORSSpec{Origins: slices.Repeat([]string{"*"}, maxOrigins+1)}, `cors.origins: has 65 origins: expected at most 64, or "*"`},
		{CORSSpec{Origins: []string{"*"}, Headers: slices.Repeat([]string{"A"}, maxCORSHeaders+1)}, "cors.headers: has 65 headers: expected at most 64"},
	} {
		f := validFunction()
		f.CORS = &c.cors
		exactError(t, f.WithDefaults().Validate(), c.want)
	}
	for _, bad := range []string{
		"", "null", "app.example.com", "https://", "https://App.example.com", "https://a.example/", "https://a.example/x", "https://a.example:443", "http://a.example:80",
		"https://*.example.com", "https://a@b.example", "https://a.example:", "https://a.example?x", "https://a.example#x", "https://a.example,https://b.example", "https://a b", "//a.example", "https://a.example:0", "https://a.example:+1", "https://a.example:65536", "https://[::1", "https://[]", "https://[a.example]",
		"https://" + strings.Repeat("a", maxOriginBytes),
	} {
		f := validFunction()
		f.CORS = &CORSSpec{Origins: []string{bad}}
		if err := f.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), "cors.origins[0]: ") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestCORSDefaults(t *testing.T) {
	given := &CORSSpec{Origins: []string{"*"}}
	f := FunctionSpec{CORS: given}.WithDefaults()
	if diff := cmp.Diff(&CORSSpec{Origins: []string{"*"}, MaxAge: 10 * time.Minute}, f.CORS); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if given.MaxAge != 0 {
		t.Error("the caller's spec was changed")
	}
	if f := (FunctionSpec{}).WithDefaults(); f.CORS != nil {
		t.Errorf("without cors: %+v", f.CORS)
	}
}

func TestCORSAllows(t *testing.T) {
	for _, c := range []struct {
		origins []string
		origin  string
		want    [2]bool
	}{
		{[]string{"https://a.example"}, "https://a.example", [2]bool{true, false}},
		{[]string{"https://a.example"}, "https://a.example.evil", [2]bool{}},
		{[]string{"https://a.example"}, "http://a.example", [2]bool{}},
		{[]string{"https://a.example", "*"}, "https://a.example", [2]bool{true, false}},
		{[]string{"https://a.example", "*"}, "https://b.example", [2]bool{true, true}},
		{[]string{"*"}, "null", [2]bool{true, true}},
		{[]string{"*"}, "", [2]bool{}},
	} {
		allowed, every := (&CORSSpec{Origins: c.origins}).Allows(c.origin)
		if got := [2]bool{allowed, every}; got != c.want {
			t.Errorf("%q of %q: got %v, want %v", c.origin, c.origins, got, c.want)
		}
	}
	if allowed, _ := (*CORSSpec)(nil).Allows("https://a.example"); allowed {
		t.Error("a function without cors allows a page")
	}
}
