package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
)

// What wait waits for.
const (
	forReady   = "ready"
	forDeleted = "deleted"
)

func (c *cli) waitCommand() *cobra.Command {
	var (
		state   string
		timeout time.Duration
	)
	kinds := []string{"model", "function", "gateway"}
	cmd := &cobra.Command{
		Use:   "wait model NAME[@VERSION], wait function NAME, or wait gateway",
		Short: "Wait until a model, a function or the gateway is ready",
		Long: `Wait until a model, a function or the gateway is ready, or until a model or a function is deleted.

A model is ready when the version that is named has its replicas and may serve, without a name the one that serves. A function is ready when
one of its models is. A model that sleeps is ready. The gateway is ready when it has read everything that is declared; it need not run yet.

The exit status is 1 if the time is over, and at once if a model has failed or was rejected.`,
		Example: `  xebec wait model digits-svm@2 --for ready --timeout 5m
  xebec wait function digits
  xebec wait model digits-svm@1 --for deleted
  xebec wait gateway --timeout 30s`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && strings.EqualFold(args[0], "gateway"):
				return nil
			case len(args) == 2:
				if kind, ok := kindArgument(args[0]); ok && kind != api.KindTraffic {
					return nil
				}
			}
			return usagef("nothing to wait for: expected model NAME, model NAME@VERSION, function NAME or gateway")
		},
		ValidArgsFunction: c.completeKindAndName(kinds...),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, _ := kindArgument(args[0])
			if state != forReady && (state != forDeleted || kind == "") {
				return usagef("--for %s: expected %s, or %s of a model or a function", state, forReady, forDeleted)
			}
			id := api.ModelID{}
			if kind != "" {
				var err error
				if id, err = api.ParseModelRef(args[1]); err != nil {
					return usageError{err}
				}
				if kind == api.KindFunction && id.Version != "" {
					return usagef("function %s: a function has no versions", args[1])
				}
			}
			return c.waitForState(cmd.Context(), kind, id, state, timeout)
		},
	}
	cmd.Flags().StringVar(&state, "for", forReady, "what to wait for: ready, deleted")
	completeFlag(cmd, "for", forReady, forDeleted)
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "longest wait, such as 30s or 5m")
	return cmd
}

// waitForState waits until an object is in a state. Without a kind the object is the gateway.
func (c *cli) waitForState(ctx context.Context, kind api.Kind, id api.ModelID, state string, timeout time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &progress{c: c, began: c.now()}
	last := error(nil)
	err := c.until(waiting, func() (done bool, err error) {
		switch {
		case state == forDeleted:
			return c.isDeleted(waiting, kind, id)
		case kind == api.KindModel:
			return c.modelIsReady(waiting, id, p)
		case kind == api.KindFunction:
			return c.functionIsReady(waiting, id.Name, p)
		}
		done, err = c.gatewayIsReady(waiting, p)
		if waiting.Err() != nil { // the reason that was there before says more
			return false, nil
		}
		last, err = err, nil
		var refused *remoteError
		var usage usageError
		if errors.As(last, &refused) || errors.As(last, &usage) { // it runs, and says the same again
			return false, last
		}
		return done, err
	})
	if err == nil || ctx.Err() != nil || waiting.Err() == nil {
		return err
	}
	what := "the gateway"
	if kind != "" {
		what = strings.ToLower(string(kind)) + " " + strings.TrimSuffix(id.String(), "@")
	}
	if last != nil {
		return fmt.Errorf("%s is not %s after %s (--timeout): %w", what, state, timeout, last)
	}
	return fmt.Errorf("%s is not %s after %s (--timeout); the gateway keeps trying: %q shows its status", what, state, timeout,
		"xebec describe "+strings.TrimPrefix(what, "the "))
}

func (c *cli) isDeleted(ctx context.Context, kind api.Kind, id api.ModelID) (bool, error) {
	var err error
	var models []api.ModelStatus
	if kind == api.KindFunction {
		err = c.get(ctx, "/v1/functions/"+id.Name, &api.FunctionList{})
	} else {
		models, err = c.models(ctx, id.Name)
	}
	var refused *remoteError
	if errors.As(err, &refused) && refused.Code == api.NotFound.String() {
		return true, nil
	}
	return err == nil && id.Version != "" && findVersion(models, id) == nil, err
}

// modelIsReady reports whether a version may serve and has replicas or sleeps. Without a version it is that of [awaited].
func (c *cli) modelIsReady(ctx context.Context, id api.ModelID, p *progress) (bool, error) {
	if id.Version == "" {
		models, err := c.models(ctx, id.Name)
		if err != nil {
			return false, err
		}
		id.Version = awaited(models)
	}
	m, may, err := c.judge(ctx, id, p)
	return err == nil && may && answersNow(m), err
}

// awaited is the version of a model that serves. If none does, it is the newest one that is to be loaded and has not failed, because an older
// version answers in place of one that cannot start; or else the newest one. models are sorted by version.
func awaited(models []api.ModelStatus) (version string) {
	hopeful := false
	for i := range models {
		m := &models[i]
		if m.Serving {
			return m.Spec.Version
		}
		hope := m.Version.Aspired && m.Version.Phase != api.PhaseRejected && m.State != api.ModelFailed
		if hope || !hopeful {
			version, hopeful = m.Spec.Version, hope
		}
	}
	return version
}

// answersNow reports whether an available version has its replicas, or gets one when it is asked.
func answersNow(m *api.ModelStatus) bool {
	return m.State == api.ModelReady || m.State == api.ModelIdle
}

// functionIsReady reports whether one of a function's models is ready. It fails if none of them will be without a change.
func (c *cli) functionIsReady(ctx context.Context, name string, p *progress) (bool, error) {
	var d api.FunctionDescription
	if err := c.get(ctx, "/v1/describe/function/"+name, &d); err != nil {
		return false, err
	}
	var failed error
	hopeless := len(d.Models) > 0
	for i := range d.Models {
		m := &d.Models[i]
		if m.Version.Phase == api.PhaseAvailable && answersNow(m) {
			return true, nil
		}
		if m.Version.Phase != api.PhaseRejected && m.State != api.ModelFailed {
			hopeless = false
			p.report(fmt.Sprintf("model %s is %s, %s", m.Spec.ID(), m.Version.Phase, readyOf(m)))
			continue
		}
		_, _, failed = c.judge(ctx, m.Spec.ID(), p)
	}
	if !hopeless {
		return false, nil
	}
	for _, name := range d.Function.Spec.Models {
		if id, err := api.ParseModelRef(name); err == nil && id.Version == "" { // another version may be about to take its place
			if ready, err := c.modelIsReady(ctx, id, p); err == nil {
				return ready, nil
			}
		}
	}
	return false, failed
}

// gatewayIsReady returns why the gateway is not ready.
func (c *cli) gatewayIsReady(ctx context.Context, p *progress) (bool, error) {
	var g api.GatewayStatus
	err := c.get(ctx, "/v1/describe/gateway", &g)
	switch {
	case err == nil && g.Ready:
		return true, nil
	case err == nil:
		err = errors.New("it has not read everything that is declared")
	}
	p.report("the gateway is not ready: " + strings.Split(err.Error(), "\n")[0])
	return false, err
}
