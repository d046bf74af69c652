package api

import "fmt"

// The tasks of a model, by which clients of OpenAI's API find it.
const (
	// TaskEmbed: the input is one text, and the first output is its vector.
	TaskEmbed = "embed"
	// TaskGenerate: the input is a prompt, and the output is the text that follows, or a stream of its pieces.
	TaskGenerate = "generate"
	// TaskChat is TaskGenerate for conversations: the input is the JSON of a list of messages, {"role": …, "content": …} each.
	TaskChat = "chat"
)

// checkTask says what a model with a task must be.
func (m *ModelSpec) checkTask() error {
	switch m.Task {
	case "":
		return nil
	case TaskEmbed, TaskGenerate, TaskChat:
	default:
		return fmt.Errorf("%q: expected %q, %q or %q, or leave it out", m.Task, TaskEmbed, TaskGenerate, TaskChat)
	}
	text := func(s *TensorSpec) bool { return s.DType == String && len(s.Shape) == 0 }
	if len(m.Inputs) != 1 || !text(&m.Inputs[0]) {
		return fmt.Errorf("%q: expected a model with one input of dtype string and shape []", m.Task)
	}
	switch {
	case m.Task != TaskEmbed:
		if len(m.Outputs) != 1 || !text(&m.Outputs[0]) {
			return fmt.Errorf("%q: expected a model with one output of dtype string and shape []", m.Task)
		}
	case m.Stream:
		return fmt.Errorf("%q: expected a model without stream: true", m.Task)
	case len(m.Outputs) < 1 || len(m.Outputs[0].Shape) != 1 || !m.Outputs[0].DType.Float():
		return fmt.Errorf("%q: expected a model whose first output is a vector of floats", m.Task)
	}
	return nil
}
