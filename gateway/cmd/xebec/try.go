package main

import (
	"context"
	"encoding/json"
	"fmt"
	stdhttp "net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/server"
)

func (c *cli) tryCommand() *cobra.Command {
	var o invokeOptions
	var b benchOptions
	cmd := &cobra.Command{
		Use:   "try DIR [--input JSON | --input-file FILE | --raw FILE]",
		Short: "Run a model directory once, without a gateway, and print its outputs",
		Long: `Start the model of a directory, send it an input, print its output, and end it. No gateway needs to run, and no port is opened. Inputs and
outputs are converted and checked as a gateway does. The model runs in the directory itself, without isolation, and its prints go to
stderr. If the directory has a requirements.txt or a pyproject.toml, an environment is built first, once, as a gateway does. Without an input it gets one of the declared types and shapes: zeros and short texts.

The exit status is 1 if the model does not start, raises, or returns what does not fit.`,
		Example: `  xebec try ./digits-svm
  xebec try ./mean --input '[1, 2, 3]'
  xebec try ./mean --batch --input '[[1, 2, 3], [4, 5, 6]]'`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, contentType := []byte(nil), ""
			if flags := cmd.Flags(); flags.Changed("input") || flags.Changed("input-file") || flags.Changed("raw") || o.batch {
				var err error
				if body, contentType, err = c.invokeBody(cmd, &o); err != nil {
					return err
				}
			}
			b.listen, b.once, b.stdout = server.NoPort, true, c.err
			return c.try(cmd.Context(), args[0], b, body, contentType, &o)
		},
	}
	o.inputFlags(cmd.Flags())
	pythonFlag(cmd, &b)
	outputFlag(cmd, &o.format)
	cmd.Flags().Lookup("output").Usage = "what to print: table (each query's output, a line of JSON each), json or yaml (the whole answer), such as -o json"
	return cmd
}

func pythonFlag(cmd *cobra.Command, o *benchOptions) {
	cmd.Flags().BoolVar(&o.asItIs, "no-environment", false, "run the model with the interpreter as it is, although its directory asks for packages")
	cmd.Flags().StringVar(&o.python, "python", "", `interpreter that "python" means in the model's command, if the model names no environment (default python3)`)
}

func (c *cli) try(ctx context.Context, dir string, o benchOptions, body []byte, contentType string, shown *invokeOptions) (err error) {
	b, err := c.newBench(ctx, dir, o)
	if err != nil {
		return err
	}
	defer func() {
		if bad := b.close(); err == nil {
			err = bad
		}
	}()
	set, err := b.load()
	if err != nil {
		return err
	}
	if err := b.declare(ctx, set); err != nil {
		return err
	}
	model := &set.Models[0]
	if body == nil {
		sample, why := sampleRequest(model)
		if why != "" {
			return usagef("no input, and none can be made: %s; give --input, --input-file or --raw", why)
		}
		body, contentType = sample, "application/json"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := b.awaitReady(ctx); err != nil {
		return err
	}
	type result struct {
		answer *dialect.Answer
		err    error
	}
	answered := make(chan result, 1)
	go func() {
		a, err := b.gateway.Local().Do(ctx, &dialect.Message{
			Method: "POST", Path: "/" + b.function() + "/predict", Header: map[string]string{"Content-Type": contentType}, Body: body,
		})
		answered <- result{a, err}
	}()
	r := <-answered
	if r.err != nil {
		return r.err
	}
	var answer prediction
	if err := json.Unmarshal(r.answer.Body, &answer); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	if shown.format != formatTable {
		if err := c.print(shown.format, r.answer.Body); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%d %s", r.answer.Status, stdhttp.StatusText(r.answer.Status))
	return c.showAnswer(b.function(), status{code: r.answer.Status, text: text}, answer, shown)
}

// awaitReady waits until the model is ready, or its process has ended.
func (b *bench) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(benchPoll)
	defer tick.Stop()
	for {
		r, err := b.replica(ctx)
		if err != nil {
			return err
		}
		switch {
		case r != nil && r.State == api.ReplicaReady:
			return nil
		case r != nil && r.LastExit != "":
			return fmt.Errorf("model %s did not start: %s", b.set.Models[0].Name, b.c.cleanLines(r.LastExit))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
