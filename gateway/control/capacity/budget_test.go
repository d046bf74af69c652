package capacity

import (
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/scheduler/placement"
)

// A GPU belongs to one launch, and to another when that has ended.
func TestAGPUBelongsToOneLaunch(t *testing.T) {
	c := &Capacity{gpus: []gpu{{index: 0}, {index: 3}}}
	env, err := c.TakeGPUs(1, 1)
	if err != nil || !slices.Equal(env, []string{"CUDA_VISIBLE_DEVICES=0", "XEBEC_GPUS=0"}) {
		t.Fatal(env, err)
	}
	if env, err = c.TakeGPUs(2, 1); err != nil || env[1] != "XEBEC_GPUS=3" {
		t.Fatal(env, err)
	}
	if _, err = c.TakeGPUs(3, 1); err == nil {
		t.Fatal("a third launch got one of two GPUs")
	}
	c.FreeGPUs(1)
	if env, err = c.TakeGPUs(3, 1); err != nil || env[1] != "XEBEC_GPUS=0" {
		t.Fatal(env, err)
	}
}

func TestResourcesText(t *testing.T) {
	for want, r := range map[string]placement.Resources{
		"nothing":                            {},
		"0.5 cores":                          {CPUMillis: 500},
		"2 cores, 512 MiB of memory, 1 GPUs": {CPUMillis: 2000, MemoryBytes: 512 << 20, GPUs: 1},
	} {
		if got := resourcesText(r); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
