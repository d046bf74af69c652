package process

import (
	"fmt"
	"slices"
)

// apart is what keeps the forks of one zygote from each other: a Landlock domain each, which they enter by themselves before they
// can be adopted (xebec._zygote), and a /proc that shows to each only what it may trace (view.go). Zero: they have none.
type apart struct {
	// abi is the version of Landlock that the zygote has found; 0: it has none, and why says the reason.
	abi int
	why string
}

// signalsABI is the first version of Landlock that restricts signals and abstract sockets.
const signalsABI = 6

// apartBy reads what a zygote reports when it is ready.
func apartBy(a forkAnswer) apart {
	switch {
	case a.Landlock == nil:
		return apart{why: "the model's installed xebec package is older than this gateway: install that of the gateway"}
	case *a.Landlock <= 0:
		return apart{why: a.Why}
	}
	return apart{abi: *a.Landlock}
}

// add returns the layers of a fork, and what it lacks: those of its zygote, and its own. It changes neither slice.
func (a apart) add(layers, missing []string) (all, lacks []string) {
	all, lacks = slices.Clone(layers), slices.Clone(missing)
	if a.abi == 0 {
		// The processes have one user, so /proc hides them from each other only if something else forbids to trace.
		all = slices.DeleteFunc(all, func(layer string) bool { return layer == layerProc })
		return all, append(lacks, "It has no Landlock domain of its own ("+a.why+"): other forks of its zygote can read its memory and environment, and signal it.")
	}
	all = append(all, fmt.Sprintf("%s (ABI %d)", layerDomain, a.abi))
	if !slices.Contains(all, layerCaps) {
		lacks = append(lacks, "It keeps capabilities: CAP_PERFMON lets it read environment and maps of other forks of its zygote, whatever their Landlock domains.")
	}
	if a.abi < signalsABI {
		lacks = append(lacks, fmt.Sprintf("Other forks of its zygote can signal it: Landlock forbids that from ABI %d (Linux 6.12) on, and this kernel has ABI %d.", signalsABI, a.abi))
	}
	return all, lacks
}
