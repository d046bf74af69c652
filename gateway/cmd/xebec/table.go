package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/runtimes"
	"github.com/xebec-serving/xebec/worker/table"
)

func (c *cli) tableCommand() *cobra.Command {
	var (
		key, other string
		describe   bool
		inputs     []string
	)
	cmd := &cobra.Command{
		Use:   "table FILE",
		Short: "Serve a table as a model: the gateway runs this",
		Long: `Serve a CSV file as a lookup table: the worker of a model whose manifest has run: {command: [xebec, table, FILE]}. Its input is the key
column, and its outputs are other columns. In a manifest, "xebec" is the gateway's own program. Deploy FILE writes such a manifest.`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !describe {
				var row *string
				if cmd.Flags().Changed("default") {
					row = &other
				}
				return table.Serve(args[0], key, row)
			}
			if len(inputs) > 0 {
				return usagef("--input is not for tables: --key names the column that is their input")
			}
			t, err := table.Read(args[0])
			if err != nil {
				return err
			}
			sig, err := t.Infer(key)
			if err != nil {
				return err
			}
			return json.NewEncoder(c.out).Encode(runtimes.Description{Inputs: described(sig.Inputs), Outputs: described(sig.Outputs)})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the column that queries give (default: the one that the model's input names, or the first)")
	cmd.Flags().StringVar(&other, "default", "", "the key whose row answers for keys that have none (default: they are refused)")
	cmd.Flags().BoolVar(&describe, "describe", false, "print inputs and outputs as JSON, and serve nothing")
	cmd.Flags().StringArrayVar(&inputs, "input", nil, "refused: it is a flag of other runtimes")
	_ = cmd.Flags().MarkHidden("input")
	return cmd
}

func described(specs []api.TensorSpec) (tensors []runtimes.Tensor) {
	for _, s := range specs {
		tensors = append(tensors, runtimes.Tensor{Name: s.Name, DType: s.DType.String(), Shape: s.Shape})
	}
	return tensors
}
