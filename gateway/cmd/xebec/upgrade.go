package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/gateway/server"
)

func (c *cli) upgradeCommand() *cobra.Command {
	dataDir, binary := "", ""
	cmd := &cobra.Command{
		Use:   "upgrade [--binary FILE]",
		Short: "Replace the program of a running gateway, without a failed request",
		Long: `Replace the program of the gateway that runs with --data-dir on this machine, without a failed request.

The gateway starts the new program with its own arguments and environment. The new process gets the listening sockets, loads as many
replicas as the old one has, and takes over; then the old one answers what it has accepted, and ends. Until the new one serves, the
old one does, and nothing can be declared or deleted. If the new one fails, the old one goes on as before.

Both need memory and cores for their replicas at the same time. The command ends when the new process serves, or with the reason why
it does not; the log of the gateway has the rest.`,
		Example: `  xebec upgrade
  xebec upgrade --binary /usr/local/bin/xebec-next --data-dir /var/lib/xebec`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if !cmd.Flags().Changed("data-dir") {
				dataDir = c.defaultDataDir()
			}
			if dataDir == "" || dataDir == noDataDir {
				return fmt.Errorf("--data-dir: expected the directory of the gateway to replace; one that keeps nothing cannot be replaced")
			}
			if binary != "" {
				if binary, err = filepath.Abs(binary); err != nil {
					return err
				}
				if info, err := os.Stat(binary); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
					return fmt.Errorf("--binary %s: expected a program that can be executed", binary)
				}
			}
			pid, err := server.Upgrade(cmd.Context(), dataDir, binary, func(pid int) {
				fmt.Fprintf(c.out, "process %d loads its replicas\n", pid)
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "process %d serves; the old one answers what it has accepted, and ends\n", pid)
			return nil
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the gateway (XEBEC_DATA_DIR) (default as for xebec serve)")
	cmd.Flags().StringVar(&binary, "binary", "", "the new program (default the file that the running one was started from, as it is now)")
	return cmd
}

// startSuccessor starts a program with this one's arguments, to take over from it.
func startSuccessor(binary string) (pid int, wait func() error, err error) {
	const flag = "--takeover"
	args := slices.Clone(os.Args[1:])
	if !slices.Contains(args, flag) {
		args = append(args, flag)
	}
	return server.StartProcess(binary, args)
}
