package api

import (
	"encoding/json"
	"reflect"
	"time"
)

// The JSON form of a spec has the field names and the value formats of the manifest, so that an operator can copy what a
// status shows into a manifest. The fields' tags declare it. encoding/json does the work, on types that jsonForm derives from the specs.

// MarshalJSON writes the spec with the names of the manifest.
func (m ModelSpec) MarshalJSON() ([]byte, error) { return writeSpec(reflect.ValueOf(m), modelForm) }

// UnmarshalJSON reads the output of MarshalJSON. It ignores unknown members and validates nothing: it is for a gateway's
// answers. Package manifest, which is strict, reads manifests.
func (m *ModelSpec) UnmarshalJSON(data []byte) error {
	return readSpec(data, reflect.ValueOf(m).Elem(), modelForm)
}

// MarshalJSON writes the spec with the names of the manifest.
func (f FunctionSpec) MarshalJSON() ([]byte, error) {
	return writeSpec(reflect.ValueOf(f), functionForm)
}

// UnmarshalJSON reads the output of MarshalJSON; see [ModelSpec.UnmarshalJSON].
func (f *FunctionSpec) UnmarshalJSON(data []byte) error {
	if err := readSpec(data, reflect.ValueOf(f).Elem(), functionForm); err != nil {
		return err
	}
	if f.Default != nil {
		// Encoders escape characters in raw JSON. The canonical form undoes that.
		canonical, err := CanonicalJSON(f.Default)
		if err != nil {
			return err
		}
		f.Default = canonical
	}
	return nil
}

// MarshalJSON writes the spec with the names of the manifest.
func (t TrafficSpec) MarshalJSON() ([]byte, error) { return writeSpec(reflect.ValueOf(t), trafficForm) }

// UnmarshalJSON reads the output of MarshalJSON; see [ModelSpec.UnmarshalJSON].
func (t *TrafficSpec) UnmarshalJSON(data []byte) error {
	return readSpec(data, reflect.ValueOf(t).Elem(), trafficForm)
}

// size is a number of bytes that JSON writes as "512MiB".
type size int64

func (n size) MarshalText() ([]byte, error) { return []byte(FormatBytes(int64(n))), nil }

func (n *size) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	*n = size(v)
	return err
}

// duration is a time.Duration that JSON writes as "20ms".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// dtypeName is an element type that JSON writes as its name.
type dtypeName DType

func (d dtypeName) MarshalText() ([]byte, error) { return []byte(DType(d).String()), nil }

func (d *dtypeName) UnmarshalText(text []byte) error {
	v, err := ParseDType(string(text))
	*d = dtypeName(v)
	return err
}

var (
	modelForm    = jsonForm(reflect.TypeFor[ModelSpec]())
	functionForm = jsonForm(reflect.TypeFor[FunctionSpec]())
	trafficForm  = jsonForm(reflect.TypeFor[TrafficSpec]())
)

// jsonForm derives the type that encoding/json reads and writes in place of t. It has t's fields and tags, with the types above for values
// that have another form in JSON. Fields with a MarshalJSON of their own stay as they are.
func jsonForm(t reflect.Type) reflect.Type {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return reflect.TypeFor[duration]()
	case reflect.TypeFor[DType]():
		return reflect.TypeFor[dtypeName]()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return reflect.PointerTo(jsonForm(t.Elem()))
	case reflect.Slice:
		return reflect.SliceOf(jsonForm(t.Elem()))
	case reflect.Struct:
		fields := make([]reflect.StructField, t.NumField())
		for i := range fields {
			f := t.Field(i)
			switch {
			case f.Tag.Get("field") == "bytes":
				f.Type = reflect.TypeFor[size]()
			case !f.Type.Implements(reflect.TypeFor[json.Marshaler]()):
				f.Type = jsonForm(f.Type)
			}
			fields[i] = f
		}
		return reflect.StructOf(fields)
	}
	return t
}

func writeSpec(spec reflect.Value, form reflect.Type) ([]byte, error) {
	v := reflect.New(form)
	toForm(v.Elem(), spec)
	return json.Marshal(v.Interface())
}

// readSpec replaces the spec, if data can be read.
func readSpec(data []byte, spec reflect.Value, form reflect.Type) error {
	v := reflect.New(form)
	if err := json.Unmarshal(data, v.Interface()); err != nil {
		return err
	}
	spec.SetZero()
	fromForm(spec, v.Elem())
	return nil
}

// toForm copies a spec into its zero JSON form. Both share maps and lists of strings. Other lists are never nil, so that JSON has [].
func toForm(dst, src reflect.Value) {
	if src.Kind() == reflect.Slice && src.IsNil() && isList(src.Type()) {
		dst.Set(reflect.MakeSlice(dst.Type(), 0, 0))
		return
	}
	convert(dst, src, toForm)
}

// fromForm copies back. Lists without an element become nil, so that equal specs compare equal: a scalar's shape is nil.
func fromForm(dst, src reflect.Value) {
	if src.Kind() == reflect.Slice && src.Len() == 0 && isList(src.Type()) {
		return
	}
	convert(dst, src, fromForm)
}

func isList(t reflect.Type) bool {
	return t.Elem().Kind() != reflect.String && t.Elem().Kind() != reflect.Uint8
}

func convert(dst, src reflect.Value, each func(dst, src reflect.Value)) {
	switch t := src.Type(); {
	case t == dst.Type():
		dst.Set(src)
	case t.Kind() == reflect.Struct:
		for i := range src.NumField() {
			each(dst.Field(i), src.Field(i))
		}
	case t.Kind() == reflect.Pointer:
		if !src.IsNil() {
			dst.Set(reflect.New(dst.Type().Elem()))
			each(dst.Elem(), src.Elem())
		}
	case t.Kind() == reflect.Slice:
		dst.Set(reflect.MakeSlice(dst.Type(), src.Len(), src.Len()))
		for i := range src.Len() {
			each(dst.Index(i), src.Index(i))
		}
	default:
		dst.Set(src.Convert(dst.Type()))
	}
}
