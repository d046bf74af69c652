package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/xebec-serving/xebec/containers"
)

func launchErrorf(cause error, format string, args ...any) *containers.LaunchError {
	return &containers.LaunchError{Message: fmt.Sprintf(format, args...), Err: cause}
}

var errClosed = errors.New("containers can no longer be started: the gateway is stopping")

// engineMessage returns the engine's answer without the prefix of every answer.
func engineMessage(err error) string {
	return strings.TrimPrefix(err.Error(), "Error response from daemon: ")
}

// unreachable describes a failed connection to the engine and says what to do. The error may be temporary.
func (r *Runtime) unreachable(err error) error {
	var silent *errNoAnswer
	if errors.As(err, &silent) {
		return fmt.Errorf("%w. It may hang (systemctl restart docker), or the machine is very busy", err)
	}
	return fmt.Errorf("the Docker engine at %s does not answer: %w. Is it running (systemctl status docker), and may this user use its socket (group docker)? "+
		"DOCKER_HOST names another", r.host, err)
}

// refused converts the engine's answer to a request into an error, which is permanent if the request itself is at
// fault.
func (r *Runtime) refused(what, image string, err error) error {
	text := engineMessage(err)
	if errors.Is(err, context.DeadlineExceeded) { // the time limit of all requests of a launch together
		r.noteNoAnswer()
		err = &errNoAnswer{r.host, createWithin}
	}
	switch silent := (*errNoAnswer)(nil); {
	case errors.As(err, &silent):
		return fmt.Errorf("%s of image %s: %w", what, image, r.unreachable(err))
	case client.IsErrConnectionFailed(err):
		r.lostContact()
		return r.unreachable(err)
	case strings.Contains(text, "could not select device driver"):
		return launchErrorf(err, "%s of image %s: %s. The engine cannot give it GPUs: install the NVIDIA container toolkit and restart the engine", what, image, text)
	case strings.Contains(text, "bind source path does not exist"):
		return launchErrorf(err, "%s of image %s: %s. The engine must see the gateway's data directory and the model's directory under the paths "+
			"that the gateway has for them: a gateway that itself runs in a container needs both mounted at the same place", what, image, text)
	case strings.Contains(strings.ToLower(text), "no command specified"):
		return launchErrorf(err, "the image %s does not say what to run, and xebec.yaml has no command: give one of them a command", image)
	case cerrdefs.IsInvalidArgument(err), strings.Contains(text, "exec: "): // runc reports a program that it cannot run as "exec: "
		return launchErrorf(err, "%s of image %s: the Docker engine says: %s", what, image, text)
	default:
		return fmt.Errorf("%s of image %s: the Docker engine at %s says: %w", what, image, r.host, err)
	}
}
