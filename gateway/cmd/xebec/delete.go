package main

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
)

func (c *cli) deleteCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "delete model NAME[@VERSION] | delete function NAME | delete traffic MODEL",
		Short: "Delete a model, one of its versions, a function, or a model's traffic rule",
		Long: `Delete a model with all its versions, one version of it, a function, or the traffic rule of a model. Waiting queries are answered first if
their deadlines allow it, and replicas are drained. Without a traffic rule, the newest version of a model that may serve answers.`,
		Example: `  xebec delete function digits
  xebec delete model digits-svm@2
  xebec delete traffic digits-svm`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 {
				if _, ok := kindArgument(args[0]); ok {
					return nil
				}
			}
			return usagef("nothing to delete: expected model NAME, model NAME@VERSION, function NAME or traffic MODEL")
		},
		ValidArgsFunction: c.completeKindAndName("model", "function", "traffic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, _ := kindArgument(args[0])
			path := "/v1/functions/" + args[1]
			switch kind {
			case api.KindTraffic:
				path = "/v1/traffic/" + args[1]
				fallthrough
			case api.KindFunction:
				if err := api.CheckName(strings.ToLower(string(kind)), args[1]); err != nil {
					return usageError{err}
				}
			default:
				id, err := api.ParseModelRef(args[1])
				if err != nil {
					return usageError{err}
				}
				path = "/v1/models/" + id.Name
				if id.Version != "" {
					path += "?" + url.Values{"version": {id.Version}}.Encode()
				}
			}
			var changes api.Changes
			if err := c.onceRead(cmd.Context(), func() error { return c.call(cmd.Context(), http.MethodDelete, path, "", nil, &changes) }); err != nil {
				return err
			}
			return c.printChanges(format, changes)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}
