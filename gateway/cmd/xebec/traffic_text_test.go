package main

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestShareOfAVersionWithoutReplica: the table shows which versions answer now.
func TestShareOfAVersionWithoutReplica(t *testing.T) {
	version := func(name string, states ...api.ReplicaState) api.ModelStatus {
		m := api.ModelStatus{Spec: api.ModelSpec{Name: "m", Version: name}}
		for _, s := range states {
			m.Replicas = append(m.Replicas, api.ReplicaStatus{State: s})
		}
		return m
	}
	traffic := &api.TrafficStatus{Spec: api.TrafficSpec{Model: "m"}, Serving: "1", Arms: []api.ArmStatus{
		{Version: "1", Rule: "serving", Share: 0.8}, {Version: "2", Rule: "split", Share: 0.2}, {Version: "3", Rule: "shadow", Share: 0.05},
	}}
	one, two, three := version("1", api.ReplicaReady), version("2", api.ReplicaBackoff, api.ReplicaReady), version("3", api.ReplicaReady)
	for _, c := range []struct {
		why      string
		versions []api.ModelStatus
		want     [3]string
	}{
		{"all have replicas", []api.ModelStatus{one, two, three}, [3]string{"80%", "20%", "5%"}},
		{"the split's version has none", []api.ModelStatus{one, version("2", api.ReplicaBackoff), three}, [3]string{"100%", noReplica, "5%"}},
		{"the serving one has none", []api.ModelStatus{version("1"), two, three}, [3]string{noReplica, "100%", "5%"}},
		{"neither of the two has", []api.ModelStatus{version("1"), version("2"), three}, [3]string{"80%", "20%", "5%"}},
		{"the shadow has none", []api.ModelStatus{one, two, version("3")}, [3]string{"80%", "20%", "5%"}},
		{"their status is unknown", nil, [3]string{"80%", "20%", "5%"}},
	} {
		for i := range traffic.Arms {
			if got := share(&traffic.Arms[i], traffic, c.versions); got != c.want[i] {
				t.Errorf("%s: version %s has %q, want %q", c.why, traffic.Arms[i].Version, got, c.want[i])
			}
		}
	}
}
