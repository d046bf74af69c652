package api

import (
	"fmt"
	"strings"
)

// MaxMediaBytes is RFC 6838's bound of a type's or a subtype's name, for both together.
const MaxMediaBytes = 127 //xebec:limit a tensor's `media`

// mediaTrees are the types that a tensor's media type may begin with.
var mediaTrees = []string{"application", "audio", "font", "image", "model", "text", "video"}

// mediaForms are media types with a meaning of their own as a body: they are not a tensor's bytes.
var mediaForms = []string{"application/json", "application/octet-stream", "application/x-ndjson", "application/x-www-form-urlencoded", "text/event-stream"}

// checkMedia reports what is wrong with t.Media.
func (t TensorSpec) checkMedia(input bool) error {
	tree, sub, _ := strings.Cut(t.Media, "/")
	switch {
	case t.Media == "":
		return nil
	case len(t.Media) > MaxMediaBytes:
		return fmt.Errorf("%.20q… has %d bytes: expected at most %d", t.Media, len(t.Media), MaxMediaBytes)
	case !mediaName(tree) || sub != "*" && !mediaName(sub):
		return fmt.Errorf("%q: expected a media type in lower case without parameters, such as image/png", t.Media)
	case !oneOf(tree, mediaTrees):
		return fmt.Errorf("%q: expected a media type that begins with one of %s", t.Media, strings.Join(mediaTrees, ", "))
	case oneOf(t.Media, mediaForms):
		return fmt.Errorf("%q is a form of whole requests or answers: expected the type of the tensor's bytes, such as image/png", t.Media)
	case sub == "*" && (!input || tree == "application" || tree == "text"):
		return fmt.Errorf("%q: expected a type and a subtype; only an input may have a range, such as image/*", t.Media)
	case !t.DType.Variable() || len(t.Shape) > 0:
		return fmt.Errorf("%s cannot have a media type: expected the dtype bytes or string and the shape []", t)
	}
	return nil
}

func oneOf(s string, list []string) bool {
	for _, one := range list {
		if s == one {
			return true
		}
	}
	return false
}

// mediaName reports whether s is a restricted name of RFC 6838 in lower case.
func mediaName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && strings.IndexByte("!#$&-^_.+", c) >= 0 {
			continue
		}
		return false
	}
	return s != ""
}

// HasMedia reports whether the bytes of the tensor may have this media type, which has no parameters: it is t.Media, in any case,
// or in its range.
func (t *TensorSpec) HasMedia(kind []byte) bool {
	want := t.Media
	if n := len(want) - 1; n > 0 && want[n] == '*' {
		return len(kind) > n && strings.EqualFold(string(kind[:n]), want[:n])
	}
	return want != "" && strings.EqualFold(string(kind), want)
}
