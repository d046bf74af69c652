package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ResidentMegabytes returns the resident memory of the gateway's process in 10⁶ bytes, including shared pages but not its workers.
func (g *Gateway) ResidentMegabytes() (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(g.PID()), "status"))
	if err != nil {
		return 0, err
	}
	return parseResident(string(text))
}

func parseResident(status string) (float64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("resident memory %q: %w", line, err)
			}
			return kib * 1024 / 1e6, nil
		}
	}
	return 0, errors.New("no VmRSS in the process's status")
}
