package apptest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// A model that may sleep is started by deploy, which fails if it cannot start, and sleeps again. A replica has start_timeout to be ready.
func TestDeployOfASleepingModel(t *testing.T) {
	t.Parallel()
	g := serve(t)
	for name, text := range map[string]string{
		"good":   testModel("good", nil, "replicas: {min: 0, max: 1}"),
		"broken": testModel("broken", []string{"-no-such-flag"}, "replicas: {min: 0, max: 1}"),
		"hangs":  strings.Replace(testModel("hangs", nil, "replicas: {min: 0, max: 1}", "start_timeout: 300ms"), programs.worker+`","-mode","markers`, `sleep","600`, 1),
	} {
		writeFile(t, g.dir, name+"/xebec.yaml", text)
	}
	g.xebecIn(g.dir, "", "deploy", "good").wants(t, "deploy", 0, "model good@1 created", "")
	g.xebec("wait", "function", "good").wants(t, "wait for a function whose model sleeps", 0, "", "")
	g.awaitAsleep("good")
	if ended := g.metrics().samples[`xebec_replica_exits_total{model="good",reason="stopped",version="1"}`]; ended != 1 {
		t.Errorf("%v replicas were started and ended: expected 1", ended)
	}
	g.xebecIn(g.dir, "", "deploy", "broken").wants(t, "deploy of a model that ends", 1, "", "model broken@1 has failed")
	g.xebecIn(g.dir, "", "deploy", "hangs").wants(t, "deploy of a model that is never ready", 1, "", "it was not ready within 300ms")
	g.xebec("wait", "model", "broken").wants(t, "wait", 1, "", "model broken@1 has failed")
}

// What would change is shown field by field; what get -o json prints has the status, and can be applied.
func TestDiffAndStatus(t *testing.T) {
	t.Parallel()
	g := serve(t)
	before, after := manifest(t, testModel("m", nil), function("f", "m")), manifest(t, testModel("m", nil, "replicas: {min: 1, max: 3}", "start_timeout: 1m"), function("f", "m"))
	g.xebec("diff", "-f", before).wants(t, "diff of what is new", 1, "model m@1 created (dry run)\nfunction f created (dry run)\n", "")
	g.xebec("apply", "-f", before, "--wait").wants(t, "apply", 0, "model m@1 created", "")
	g.xebec("diff", "-f", before).wants(t, "diff of the same", 0, "", "")
	const fields = "model m@1 updated (dry run)\n  replicas.max: 1 → 3\n  start_timeout: (none) → \"1m0s\"\n"
	g.xebec("diff", "-f", after).wants(t, "diff", 1, fields, "")
	g.xebec("apply", "-f", after, "--dry-run").wants(t, "dry run", 0, fields+"function f unchanged (dry run)", "")
	g.xebec("diff", "-f", manifest(t, function("f", "nobody"))).wants(t, "diff of what is refused", 3, "", "there is no model nobody")
	g.xebec("apply", "-f", after).wants(t, "apply", 0, "model m@1 updated", "")

	printed := g.must("get", "models", "m", "-o", "json")
	var models []struct {
		Name   string
		Status api.ModelStatus
	}
	if err := json.Unmarshal([]byte(printed), &models); err != nil || len(models) != 1 || models[0].Name != "m" || models[0].Status.State != api.ModelReady || len(models[0].Status.Replicas) != 1 {
		t.Errorf("get -o json: %v\n%s", err, printed)
	}
	g.xebecIn(g.dir, printed, "apply", "-f", "-").wants(t, "apply of what get printed", 0, "model m@1 unchanged", "")
	g.xebecIn(g.dir, g.must("get", "functions", "-o", "json"), "apply", "-f", "-").wants(t, "apply of functions", 0, "function f unchanged", "")
	g.xebec("wait", "model", "m@1", "--for", "ready").wants(t, "wait", 0, "", "")
	g.xebec("wait", "gateway").wants(t, "wait for the gateway", 0, "", "")
	g.xebec("--admin", "127.0.0.1:1", "wait", "gateway", "--timeout", "100ms").wants(t, "wait for a gateway that does not run", 1, "", "the gateway is not ready after 100ms")
}
