package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
)

func (c *cli) promoteCommand() *cobra.Command {
	var (
		format string
		wait   waitOptions
	)
	cmd := &cobra.Command{
		Use:   "promote MODEL[@VERSION]",
		Short: "Make a version of a model the one that serves",
		Long: `Make a version of a model the one that serves, and end the model's split, shadow, roll-out and rollback. Without VERSION, promote takes
the version of the roll-out, split or shadow, otherwise the newest one.`,
		Example: `  xebec promote digits
  xebec promote digits@4 --wait`,
		Args:              exactly("MODEL[@VERSION]"),
		ValidArgsFunction: c.completeVersion,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := api.ParseModelRef(args[0])
			if err != nil {
				return usageError{err}
			}
			request := map[string]string{}
			if id.Version != "" {
				request["version"] = id.Version
			}
			return c.move(cmd.Context(), id, "promote", request, format, wait)
		},
	}
	wait.servingFlags(cmd)
	outputFlag(cmd, &format)
	return cmd
}

func (c *cli) rollbackCommand() *cobra.Command {
	var (
		format, to, reason string
		wait               waitOptions
	)
	cmd := &cobra.Command{
		Use:   "rollback MODEL",
		Short: "Make an older version of a model serve again",
		Long: `Make an older version of a model serve: that of --to, otherwise the one that served before. The present version, and those between the
two, are not loaded again until a newer version may serve, or one of them is promoted.`,
		Example: `  xebec rollback digits
  xebec rollback digits --to 3 --reason 'takes sevens for ones' --wait`,
		Args:              exactly("MODEL"),
		ValidArgsFunction: c.completeName(api.KindModel),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := api.CheckName("model", args[0]); err != nil {
				return usageError{err}
			}
			request := map[string]string{}
			if cmd.Flags().Changed("to") {
				if err := api.CheckVersion(to); err != nil {
					return usagef("--to: %w", err)
				}
				request["to"] = to
			}
			if reason != "" {
				request["reason"] = reason
			}
			return c.move(cmd.Context(), api.ModelID{Name: args[0], Version: to}, "rollback", request, format, wait)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "version to serve")
	cmd.Flags().StringVar(&reason, "reason", "", "what is wrong with the present version, for the history")
	wait.servingFlags(cmd)
	outputFlag(cmd, &format)
	return cmd
}

func (w *waitOptions) servingFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait until the version serves, or cannot serve")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 2*time.Minute, "how long to wait")
}

// completeVersion completes MODEL, then MODEL@VERSION.
func (c *cli) completeVersion(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all := c.names(cmd.Context(), api.KindModel)
	id, err := api.ParseModelRef(typed)
	if name := id.Name; err == nil || len(typed) > 0 && typed[len(typed)-1] == '@' {
		if err != nil {
			name = typed[:len(typed)-1]
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		models, err := c.models(ctx, name)
		for i := range models {
			if err == nil {
				all = append(all, models[i].Spec.ID().String())
			}
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// move requests a promotion or rollback to a version. Without one, the gateway chooses.
func (c *cli) move(ctx context.Context, id api.ModelID, what string, request map[string]string, format string, wait waitOptions) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var changes api.Changes
	if err := c.onceRead(ctx, func() error {
		return c.call(ctx, http.MethodPost, "/v1/models/"+id.Name+"/"+what, "application/json", body, &changes)
	}); err != nil {
		return err
	}
	if err := c.printChanges(format, changes); err != nil || !wait.wait {
		return err
	}
	for _, ch := range changes.Changes {
		if ch.Name == id.Name && ch.Version != "" && id.Version == "" {
			id.Version = ch.Version
		}
	}
	waiting, cancel := context.WithTimeout(ctx, wait.timeout)
	defer cancel()
	err = c.waitUntilItServes(waiting, &id, &progress{c: c, began: c.now()})
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return fmt.Errorf("model %s does not serve after %s (--timeout); the gateway keeps trying: %q shows its status",
			strings.TrimSuffix(id.String(), "@"), wait.timeout, "xebec describe model "+id.Name)
	}
	return err
}

// waitUntilItServes waits until a model's traffic goes to a version. Without one, it waits for the version that the
// model's rule names, and fills it in.
func (c *cli) waitUntilItServes(ctx context.Context, id *api.ModelID, p *progress) error {
	return c.until(ctx, func() (bool, error) {
		t, err := c.trafficOf(ctx, id.Name)
		if err != nil {
			return false, err
		}
		if id.Version == "" {
			id.Version = t.Spec.Serving
			if id.Version == "" && t.Spec.Rollback != nil {
				id.Version = t.Spec.Rollback.To
			}
		}
		if id.Version == "" {
			id.Version = t.Serving
		}
		if id.Version == "" {
			p.report(fmt.Sprintf("no version of model %s may serve yet", id.Name))
			return false, nil
		}
		_, may, err := c.judge(ctx, *id, p)
		return may && t.Serving == id.Version, err
	})
}
