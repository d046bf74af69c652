package measured

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// Hardware describes what this machine evaluates models with, for people and to compare: its processor, the cores that the gateway and its
// replicas may use, and its GPUs, as in "AMD EPYC 7763, 4 cores; NVIDIA H200".
func Hardware(cores int) string { return hardware("/proc", cores) }

// hardware reads from a directory like /proc.
func hardware(proc string, cores int) string {
	name := field(filepath.Join(proc, "cpuinfo"), "model name")
	if name == "" {
		name = runtime.GOARCH
	}
	text := fmt.Sprintf("%s, %s", name, numerals.Count(cores, "core"))
	found, _ := filepath.Glob(filepath.Join(proc, "driver/nvidia/gpus/*/information"))
	var gpus []string
	for _, file := range found {
		if model := field(file, "Model"); model != "" && !slices.Contains(gpus, model) {
			gpus = append(gpus, model)
		}
	}
	if len(gpus) > 0 {
		text += "; " + strings.Join(gpus, ", ")
	}
	return text[:min(len(text), maxText)]
}

// field is the value of the first line "name : value" of a file; empty if there is none in its first 64 KiB.
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, 64<<10)); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if !ok || strings.TrimSpace(key) != name {
			continue
		}
		value = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(value, ""), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
		return value[:min(len(value), 100)]
	}
	return ""
}
