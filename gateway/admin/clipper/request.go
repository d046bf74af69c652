package clipper

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// request is the JSON object of one call. The first member that is wrong is its error; members that are not asked for are ignored, as
// Clipper does.
type request struct {
	members map[string]json.RawMessage
	schema  string
	err     error
}

func parse(body []byte, schema string) *request {
	r := &request{schema: schema}
	if err := json.Unmarshal(body, &r.members); err != nil || r.members == nil {
		r.fail("the body is not a JSON object")
	}
	return r
}

func (r *request) fail(format string, args ...any) {
	if r.err == nil {
		r.err = api.Errorf(api.InvalidArgument, "Error parsing JSON: %s. Expected JSON schema: %s", fmt.Sprintf(format, args...), r.schema)
	}
}

// member reads a member into v, which want describes.
func (r *request) member(name, want string, v any) {
	raw, ok := r.members[name]
	switch {
	case !ok:
		r.fail("there is no %q", name)
	case string(raw) == "null" || json.Unmarshal(raw, v) != nil:
		r.fail("%q is not %s", name, want)
	}
}

func (r *request) has(name string) bool { _, ok := r.members[name]; return ok }

func (r *request) text(name string) (s string) {
	r.member(name, "a string", &s)
	return s
}

func (r *request) texts(name string) (list []string) {
	r.member(name, "an array of strings", &list)
	return list
}

func (r *request) integer(name string) (n int64) {
	r.member(name, "an integer", &n)
	return n
}

func (r *request) boolean(name string) (b bool) {
	r.member(name, "true or false", &b)
	return b
}

// name reads a name of an application or model.
func (r *request) name(member, what string) string {
	s := r.text(member)
	if r.err == nil {
		if err := api.CheckName(what, s); err != nil {
			r.err = api.Errorf(api.InvalidArgument, "%s: %w", member, err)
		}
	}
	return s
}

func (r *request) version() string {
	s := r.text("model_version")
	if r.err == nil {
		if err := api.CheckVersion(s); err != nil {
			r.err = api.Errorf(api.InvalidArgument, "model_version: %w", err)
		}
	}
	return s
}

func (r *request) model() api.ModelID {
	return api.ModelID{Name: r.name("model_name", "model"), Version: r.version()}
}

// aliases are the names that Clipper takes for each input type.
var aliases = map[string][]string{
	"bytes":    {"bytes", "byte", "b"},
	"integers": {"integers", "ints", "integer", "int", "i"},
	"floats":   {"floats", "float", "f"},
	"doubles":  {"doubles", "double", "d"},
	"strings":  {"strings", "string", "str", "strs", "s"},
}

func (r *request) inputType() string {
	given := r.text("input_type")
	for name, others := range aliases {
		if slices.Contains(others, given) {
			return name
		}
	}
	r.fail("input_type %.40q: expected %s", given, strings.Join(api.InputTypes, ", "))
	return ""
}

// micros reads a latency objective.
func (r *request) micros() int64 {
	n := r.integer("latency_slo_micros")
	if most := api.MaxSLO.Microseconds(); r.err == nil && (n < 1 || n > most) {
		r.err = api.Errorf(api.InvalidArgument, "latency_slo_micros: %d: expected 1 to %d", n, most)
	}
	return n
}

// batchSize reads the size of batches; 0 means that the gateway chooses. Old clients do not send it.
func (r *request) batchSize() int {
	const unset = -1
	if !r.has("batch_size") {
		return 0
	}
	n := r.integer("batch_size")
	switch {
	case r.err != nil || n == unset:
		return 0
	case n <= 0 || n > math.MaxInt32:
		r.err = api.Errorf(api.InvalidArgument, "The batch size must be positive or DEFAULT_BATCH_SIZE, which is -1")
	}
	return int(n)
}

// uid reads the user of get_state: an integer, or the text of a context.
func (r *request) uid() string {
	var n int64
	if json.Unmarshal(r.members["uid"], &n) == nil && string(r.members["uid"]) != "null" {
		return fmt.Sprint(n)
	}
	return r.text("uid")
}
