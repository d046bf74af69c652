package declarations

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

const (
	noToken = `"host" is refused while the admin port asks for no token`
	refused = "run.network: " + noToken
)

var networked = strings.Replace(model, "run: {", "run: {network: host, ", 1)

// A model with the host's network is refused wherever it comes from, with the same words, where the host does not allow it. Nothing of
// it is in force, so nothing is launched.
func TestTheHostsNetworkIsRefused(t *testing.T) {
	ctx := context.Background()
	problems := func(b *bench) (all []string) {
		s := b.cfg.Catalog.Lock()
		defer b.cfg.Catalog.Unlock()
		for _, source := range b.Sources(s, "") {
			all = append(all, source.Problems...)
		}
		return all
	}
	is := func(text string) bool { return strings.Contains(text, refused) && strings.Contains(text, "m@1") }

	t.Run("apply", func(t *testing.T) {
		b := newBench(t, Config{})
		b.cfg.Host.NoHostNetwork = noToken
		if err := b.apply(networked); code(err) != api.InvalidArgument || !is(err.Error()) || b.spec("1") != nil {
			t.Errorf("error %v", err)
		}
	})
	t.Run("--config", func(t *testing.T) {
		b := newBench(t, Config{})
		b.cfg.Host.NoHostNetwork = noToken
		if err := b.Begin(ctx, decoded(t, networked)); err == nil || !is(err.Error()) || b.spec("1") != nil {
			t.Errorf("error %v", err)
		}
	})
	dir := t.TempDir()
	at := filepath.Join(dir, "m", "1")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "xebec.yaml"), []byte(strings.TrimPrefix(networked, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("deploy", func(t *testing.T) {
		b := newBench(t, Config{})
		b.cfg.Host.NoHostNetwork = noToken
		if _, err := b.Deploy(ctx, api.Deployment{Dir: at}); code(err) != api.InvalidArgument || !is(err.Error()) || b.spec("1") != nil {
			t.Errorf("error %v", err)
		}
	})
	t.Run("watched directory", func(t *testing.T) {
		b := newBench(t, Config{Watch: []string{dir}})
		b.cfg.Host.NoHostNetwork = noToken
		until(t, "the directory is read", func() bool {
			b.scanWatched()
			return len(problems(b)) > 0
		})
		if all := problems(b); !slices.ContainsFunc(all, is) || b.spec("1") != nil {
			t.Errorf("problems %q, spec %+v", all, b.spec("1"))
		}
	})
	t.Run("store", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state.db")
		first := begun(t, Config{Store: fileStore(t, path)})
		first.mustApply(networked)
		first.stop()

		b := newBench(t, Config{Store: fileStore(t, path)}) // without a token, now
		b.cfg.Host.NoHostNetwork = noToken
		if err := b.Begin(ctx, &manifest.Set{}); err != nil {
			t.Fatal(err)
		}
		if all := problems(b); !slices.ContainsFunc(all, is) || b.spec("1") != nil {
			t.Errorf("problems %q, spec %+v", all, b.spec("1"))
		}
		changes, err := b.cfg.Store.Changes(ctx, 0)
		if err != nil || !slices.ContainsFunc(changes.Objects, func(o state.Object) bool { return o.Name == "m@1" }) {
			t.Errorf("the store has %+v, error %v: the declaration must not be lost", changes.Objects, err)
		}
		if _, err := b.Delete(ctx, api.KindModel, api.ModelID{Name: "m"}); err != nil || len(problems(b)) != 0 {
			t.Errorf("deleted: error %v, problems %q", err, problems(b))
		}
		b.stop()
		again := begun(t, Config{Store: fileStore(t, path)})
		if again.spec("1") != nil {
			t.Errorf("the deleted model is back: %+v", again.spec("1"))
		}
		again.mustApply(networked)
		again.stop()

		b = newBench(t, Config{Store: fileStore(t, path)})
		b.cfg.Host.NoHostNetwork = noToken
		if err := b.Begin(ctx, &manifest.Set{}); err != nil || len(problems(b)) == 0 {
			t.Fatalf("error %v, problems %q", err, problems(b))
		}
		b.mustApply(model)
		if all := problems(b); len(all) != 0 || b.spec("1") == nil {
			t.Errorf("declared without it: problems %q, spec %+v", all, b.spec("1"))
		}
		b.stop()
		if again := begun(t, Config{Store: fileStore(t, path)}); again.spec("1") == nil || again.spec("1").Run.Network == api.NetworkHost {
			t.Errorf("after a restart: %+v", again.spec("1"))
		}
	})
}
