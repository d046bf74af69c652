package apptest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// moving is an image's name of this test's own, which moves.
type moving struct {
	e    *engine
	name string
}

// newMoving makes an image of this test's own, with what is in the engine's.
func newMoving(t *testing.T, e *engine, suffix string) *moving {
	t.Helper()
	m := &moving{e, strings.Replace(e.image, ":", "-"+suffix+":at-", 1)}
	t.Cleanup(func() { e.docker(t, "rmi", "--force", m.name) })
	m.commit(t, "LABEL made-for="+suffix)
	return m
}

// commit makes the name mean the engine's image with a change.
func (m *moving) commit(t *testing.T, change string) {
	t.Helper()
	container := m.e.docker(t, "create", "--network", "none", m.e.image)
	defer m.e.docker(t, "rm", container)
	m.e.docker(t, "commit", "--change", change, container, m.name)
}

// id is what the name means now.
func (m *moving) id(t *testing.T) string {
	return m.e.docker(t, "image", "inspect", "--format", "{{.Id}}", m.name)
}

// move makes the name mean an image whose worker fails at each query.
func (m *moving) move(t *testing.T) {
	t.Helper()
	was := m.id(t)
	m.commit(t, `ENTRYPOINT ["/worker", "-mode", "error"]`)
	if m.id(t) == was {
		t.Fatal("the name has not moved")
	}
	t.Cleanup(func() { _ = m.e.command(t.Context(), nil, "rmi", "--force", was).Run() }) // what has lost its name
}

// runs fails unless all containers of a model have been made from an image.
func (e *engine) runs(t *testing.T, g *gateway, model, id string) {
	t.Helper()
	for _, name := range e.containers(t, g, model) {
		if got := e.docker(t, "inspect", "--format", "{{.Image}}", name); got != id {
			t.Errorf("container %s of %s has the image %s: expected %s", name, model, got, id)
		}
	}
}

// awaitPinned waits until a version's image is stored.
func (g *gateway) awaitPinned(ref, digest string) {
	g.t.Helper()
	name, _, _ := strings.Cut(ref, "@")
	g.await("the digest of the image of "+ref, func(context.Context) (bool, string) {
		for _, e := range g.history(name) {
			if name+"@"+e.Version == ref && strings.Contains(e.Detail, "image_digest: ") && strings.Contains(e.Detail, digest) {
				return true, ""
			}
		}
		return false, fmt.Sprint(g.history(name))
	})
}

// The name of an image moves after its version has served. The version keeps the bytes: in the replica that follows one that was killed, after the same
// manifest is applied again, and after a restart of the gateway. Another version has the new bytes. A version whose image is gone says so.
func imageMoves(t *testing.T, e *engine) {
	image := newMoving(t, e, "moves")
	data, one := newDir(t), imageModel(t, "m", image.name, "", uncached)
	first := image.id(t)
	serves := func(g *gateway) {
		t.Helper()
		if a := g.raw("f", "hello"); !a.predicted() || a.text() != "hello" {
			t.Errorf("the model answers %v", a)
		}
		e.runs(t, g, "m", first)
	}
	g := e.serve(t, "--data-dir", data)
	g.apply(one, function("f", "m", "slo: 60s"))
	g.awaitReplicas("m", 1)
	serves(g)
	g.awaitPinned("m@1", first)
	g.describes("m", "Image:", image.name, "Image digest:", first)

	image.move(t)
	kill(t, g.model("m").Replicas[0].PID)
	g.awaitModel("m", "a new replica", func(m api.ModelStatus) bool { return restarts(m) == 1 && m.ReadyReplicas() == 1 })
	serves(g)
	g.xebec("apply", "-f", manifest(t, one)).wants(t, "the same manifest", 0, "model m@1 unchanged", "")
	g.stop()

	g = e.serve(t, "--data-dir", data)
	g.awaitReplicas("m", 1)
	serves(g)
	if out := g.must("export"); strings.Contains(out, "image_digest") {
		t.Errorf("the export names an image that is on this host only:\n%s", out)
	}
	second := image.id(t)
	g.xebec("apply", "-f", manifest(t, strings.Replace(one, "run:", fmt.Sprintf("image_digest: %q\nrun:", second), 1))).
		wants(t, "the same version with other bytes", 1, "", "image_digest: the version exists with other bytes of its image ("+first+", not "+second+")")

	g.apply(traffic("m", `serving: "1"`, "versions: {specific: [\"1\", \"2\"]}"), version(one, "2"))
	g.awaitPinned("m@2", second)
	g.await("replicas of both versions", func(context.Context) (bool, string) {
		ids := map[string]int{}
		for _, name := range e.containers(t, g, "m") {
			ids[e.docker(t, "inspect", "--format", "{{.Image}}", name)]++
		}
		return ids[first] == 1 && ids[second] == 1 && len(ids) == 2, fmt.Sprint(ids)
	})
	if a := g.raw("f", "hello"); !a.predicted() || a.text() != "hello" {
		t.Errorf("beside version 2 the model answers %v", a)
	}
	g.stop()

	e.docker(t, "rmi", first)
	g = e.serve(t, "--data-dir", data)
	g.await("describe to say that the image of version 1 is gone", func(context.Context) (bool, string) {
		out := g.must("describe", "model", "m@1")
		for _, says := range []string{"the image " + image.name + " that m@1 serves with is gone from this host", "pinned to " + first, "docker load", "--new-version"} {
			if !strings.Contains(out, says) {
				return false, out
			}
		}
		return true, ""
	})
}

// A version may name its image's bytes itself. A digest that no image has is refused in a trial, and says what to do at a launch.
func imageOfOthers(t *testing.T, e *engine) {
	image := newMoving(t, e, "others")
	first := image.id(t)
	image.move(t)
	pinned := func(name, digest string) string {
		return imageModel(t, name, image.name, "", uncached, fmt.Sprintf("image_digest: %q", digest))
	}
	g := e.serve(t)
	g.apply(pinned("m", first), function("f", "m", "slo: 60s"))
	g.awaitReplicas("m", 1)
	if a := g.raw("f", "hello"); !a.predicted() || a.text() != "hello" {
		t.Errorf("the model answers %v", a)
	}
	e.runs(t, g, "m", first)
	absent := "sha256:" + strings.Repeat("0a", 32)
	g.xebec("apply", "--dry-run", "-f", manifest(t, pinned("gone", absent))).wants(t, "a trial", 1, "", absent+" is not on this host")
	g.must("apply", "-f", manifest(t, pinned("gone", absent), defaulted("gone")))
	g.wantsFailed("gone", "is gone from this host: the version is pinned to "+absent, "docker load", "--new-version")
	g.must("apply", "-f", manifest(t, pinned("far", "127.0.0.1:9/xebec/nowhere@"+absent), defaulted("far")))
	g.wantsFailed("far", "is pinned to 127.0.0.1:9/xebec/nowhere@"+absent, e.address, "cannot pull that")
}
