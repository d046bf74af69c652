package deployment

import (
	"reflect"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// compact returns a spec that shares equal parts with the spec deployed before it, and has the rest in memory of its own.
// Thousands of models are mostly declared by one program and differ in little but their names. Without the copy, a name of eight
// bytes would keep alive the page of everything that the parser allocated around it.
func (h *Host) compact(spec api.ModelSpec) api.ModelSpec {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := &h.similar
	spec.Name = strings.Clone(spec.Name)
	for _, one := range []struct{ is, was *string }{
		{&spec.Version, &was.Version}, {&spec.Python, &was.Python}, {&spec.Batching.Policy, &was.Batching.Policy}, {&spec.Cache, &was.Cache},
		{&spec.Device, &was.Device}, {&spec.Dir, &was.Dir}, {&spec.Run.Image, &was.Run.Image},
		{&spec.Digest, &was.Digest}, {&spec.ImageDigest, &was.ImageDigest}, {&spec.Interpreter, &was.Interpreter},
	} {
		*one.is = sharedText(*one.is, *one.was)
	}
	spec.Inputs, spec.Outputs = sharedTensors(spec.Inputs, was.Inputs), sharedTensors(spec.Outputs, was.Outputs)
	spec.Run.Command, spec.Preload = sharedList(spec.Run.Command, was.Run.Command), sharedList(spec.Preload, was.Preload)
	if reflect.DeepEqual(spec.Run.Env, was.Run.Env) {
		spec.Run.Env = was.Run.Env
	}
	h.similar = spec
	return spec
}

func sharedText(is, was string) string {
	if is == was {
		return was
	}
	return strings.Clone(is)
}

func sharedList(is, was []string) []string {
	if reflect.DeepEqual(is, was) { // nil is not empty: specs are compared like this
		return was
	}
	out := slices.Clone(is)
	for i := range out {
		out[i] = strings.Clone(out[i])
	}
	return out
}

func sharedTensors(is, was []api.TensorSpec) []api.TensorSpec {
	if reflect.DeepEqual(is, was) {
		return was
	}
	out := slices.Clone(is)
	for i := range out {
		out[i].Name, out[i].Shape, out[i].Media = strings.Clone(out[i].Name), slices.Clone(out[i].Shape), strings.Clone(out[i].Media)
	}
	return out
}
