package api

// InputTypes are Clipper's names of the types that an input may have.
var InputTypes = []string{"bytes", "integers", "floats", "doubles", "strings"}

// InputTypeOf is the name among [InputTypes] of a model's only input. It is empty for other inputs, which Clipper has not.
func InputTypeOf(inputs []TensorSpec) string {
	if len(inputs) != 1 {
		return ""
	}
	switch inputs[0].DType {
	case Bytes:
		return "bytes"
	case String:
		return "strings"
	case Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64:
		return "integers"
	case Float16, BFloat16, Float32:
		return "floats"
	case Float64:
		return "doubles"
	}
	return ""
}

// describeInputs says what a function over these inputs may have as its input type.
func describeInputs(inputs []TensorSpec, takes string) string {
	if takes == "" {
		return "no input_type, since " + inputNames(inputs) + " have no such name"
	}
	return takes + ", or no input_type"
}

func inputNames(inputs []TensorSpec) string {
	if len(inputs) == 1 {
		return "inputs of type " + inputs[0].DType.String()
	}
	return "several inputs"
}
