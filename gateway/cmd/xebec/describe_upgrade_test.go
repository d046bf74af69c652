package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// An upgrade that is under way is part of the gateway's description.
func TestDescribeUpgrade(t *testing.T) {
	since := then.Add(-2 * time.Minute)
	for want, u := range map[string]*api.UpgradeStatus{
		"": nil,
		"this is the old process, the new one is 17\nWaits for: digits@2 has 1 of 2 replicas, words@1 has 0 of 1 replica": {
			Role: api.UpgradeOld, Peer: 17, Since: since, Step: api.UpgradeLoading, Awaited: []string{"digits@2 has 1 of 2 replicas", "words@1 has 0 of 1 replica"},
		},
		"this is the canary process, the old one is 4\nCanary: has 5% of the new connections": {
			Role: api.UpgradeCanaryProcess, Peer: 4, Since: since, Step: api.UpgradeCanary, Share: 0.05,
		},
	} {
		x := newConsole("")
		x.now = func() time.Time { return then }
		text, err := json.Marshal(api.GatewayStatus{Version: "v1", Upgrade: u})
		if err != nil {
			t.Fatal(err)
		}
		if err := x.page(func(p *page) error { return showGateway(p, text) }); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(x.stdout.String()) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		got := strings.Join(lines, "\n")
		if want == "" && strings.Contains(got, "Upgrade") || !strings.Contains(got, want) {
			t.Errorf("got %q, expected %q in it", got, want)
		}
	}
}
