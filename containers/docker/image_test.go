package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

var (
	someID, otherID = "sha256:" + strings.Repeat("5", 64), "sha256:" + strings.Repeat("6", 64)
	someDigest      = "sha256:" + strings.Repeat("d", 64)
)

// What names the bytes of an image from now on: its digest in the repository that the name is of, or else its id.
func TestDigestOfAnImage(t *testing.T) {
	for _, c := range []struct {
		name    string
		digests []string
		want    string
	}{
		{"team/m:1", nil, someID},
		{"team/m:1", []string{"other/m@" + someDigest, "team/m@" + someDigest}, "team/m@" + someDigest},
		{"team/m:1", []string{"other/m@" + someDigest}, someID},
		{"m", []string{"docker.io/library/m@" + someDigest}, "docker.io/library/m@" + someDigest},
		{"r.example.org:5000/m:1", []string{"m@" + someDigest, "r.example.org:5000/m@" + someDigest}, "r.example.org:5000/m@" + someDigest},
		{"team/m@" + someDigest, []string{"team/m@" + someDigest}, "team/m@" + someDigest},
		{someID, []string{"team/m@" + someDigest}, someID},
	} {
		if got := (image{id: someID, digests: c.digests}).digest(c.name); got != c.want {
			t.Errorf("%s with %v: %s, expected %s", c.name, c.digests, got, c.want)
		}
	}
}

// engineWith is an engine that has images by these references. asked gets what was pulled.
func engineWith(t *testing.T, images map[string]string, pulled *[]string) *Runtime {
	t.Helper()
	return fakeEngine(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/images/create") {
			*pulled = append(*pulled, req.URL.Query().Get("fromImage")+"@"+req.URL.Query().Get("tag"))
			fmt.Fprintln(w, `{"errorDetail":{"message":"manifest unknown"},"error":"manifest unknown"}`)
			return
		}
		_, ref, _ := strings.Cut(req.URL.Path, "/images/")
		id, ok := images[strings.TrimSuffix(ref, "/json")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintln(w, `{"message":"No such image"}`)
			return
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"Id": id}); err != nil {
			t.Error(err)
		}
	})
}

// A launch with a digest has these bytes, by whichever reference the engine knows them, and not those of the name. What is gone is pulled if a registry may have it. The error
// names the digest and what to do.
func TestPinnedImage(t *testing.T) {
	repository := "team/m@" + someDigest
	for name, c := range map[string]struct {
		digest string
		images map[string]string
		ref    string // found; empty: an error
		pulls  string
	}{
		"an id":                             {someID, map[string]string{"team/m:1": otherID, someID: someID}, someID, ""},
		"an id without its algorithm":       {someID, map[string]string{someID: strings.Repeat("5", 64)}, someID, ""},
		"a digest":                          {repository, map[string]string{"team/m:1": otherID, repository: someID}, repository, ""},
		"a digest whose name was removed":   {repository, map[string]string{"team/m:1": otherID, someDigest: someID}, someDigest, ""},
		"a digest, of the name's own":       {someDigest, map[string]string{"team/m:1": otherID, repository: someID}, repository, ""},
		"an id that is gone":                {someID, map[string]string{"team/m:1": otherID}, "", ""},
		"a digest that no registry has now": {repository, map[string]string{"team/m:1": otherID}, "", "docker.io/" + repository},
	} {
		t.Run(name, func(t *testing.T) {
			var pulled []string
			r := engineWith(t, c.images, &pulled)
			l := containers.Launch{Model: api.ModelID{Name: "m", Version: "1"}, Image: "team/m:1", ImageDigest: c.digest}
			img, err := r.image(t.Context(), l)
			if strings.Join(pulled, " ") != c.pulls {
				t.Errorf("pulled %v, expected %q", pulled, c.pulls)
			}
			if c.ref != "" {
				if err != nil || img.ref != c.ref || img.id != someID {
					t.Errorf("%+v, %v", img, err)
				}
				return
			}
			var launch *containers.LaunchError
			if !errors.As(err, &launch) {
				t.Fatalf("error %v", err)
			}
			for _, says := range []string{"team/m:1", "m@1", "pinned to " + c.digest, "docker load", "docker pull", "--new-version"} {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("the error does not say %q: %v", says, err)
				}
			}
		})
	}
}

// A container that waits takes a launch only if it has the bytes of the launch's image.
func TestImageOfAContainerThatWaits(t *testing.T) {
	var pulled []string
	r := engineWith(t, map[string]string{"team/m:1": otherID, someID: someID, "team/m@" + someDigest: someID}, &pulled)
	for name, c := range map[string]struct {
		made   containers.Image
		digest string
		ok     bool
	}{
		"before the version has an image":     {containers.Image{ID: otherID, Digest: otherID}, "", true},
		"from the same id":                    {containers.Image{ID: someID, Digest: someID}, someID, true},
		"from the same digest":                {containers.Image{ID: someID, Digest: "team/m@" + someDigest}, "team/m@" + someDigest, true},
		"from the same bytes by another name": {containers.Image{ID: someID, Digest: someID}, "team/m@" + someDigest, true},
		"after the name has moved":            {containers.Image{ID: otherID, Digest: otherID}, someID, false},
		"and the version's image is gone":     {containers.Image{ID: otherID, Digest: otherID}, "team/m@" + otherID, false},
	} {
		in := &instance{r: r, image: c.made, launch: containers.Launch{Image: "team/m:1"}}
		if err := in.hasImage(t.Context(), containers.Launch{Image: "team/m:1", ImageDigest: c.digest}); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The engine makes a container of what was found, and the container says what that was, also if the name has moved in between.
func TestContainersAreMadeOfWhatWasFound(t *testing.T) {
	s := &spec{launch: containers.Launch{Image: "team/m:1", ImageDigest: someID}}
	if err := s.setImage(image{ref: someID, id: someID}); err != nil {
		t.Fatal(err)
	}
	if got := s.options().Config.Image; got != someID {
		t.Errorf("made of %s", got)
	}
	s.image.digests = []string{"team/m@" + someDigest}
	for took, want := range map[string]containers.Image{
		someID:                                {ID: someID, Digest: "team/m@" + someDigest},
		strings.TrimPrefix(someID, "sha256:"): {ID: someID, Digest: "team/m@" + someDigest},
		otherID:                               {ID: otherID, Digest: otherID},
	} {
		if got := imageOf(client.ContainerInspectResult{Container: container.InspectResponse{Image: took}}, s); got != want {
			t.Errorf("made of %s: %+v, expected %+v", took, got, want)
		}
	}
}
