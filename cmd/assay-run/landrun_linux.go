package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/sandbox"
)

// landrunCommand stands in for the program landrun, with the same flags, defaults and exit codes.
func landrunCommand(a *app) *cobra.Command {
	l := &sandbox.Landrun{}
	var env, unixSockets []string
	var addExec, ldd bool
	var level string
	cmd := &cobra.Command{
		Use:   "landrun [flags] [--] CMD [ARG...]",
		Short: "Run a command under Landlock, with landrun's flags",
		Long: `landrun restricts a command by Landlock alone, with the flags, defaults and exit
codes of the program landrun: everything that no flag allows is denied, the command
gets only the environment variables that --env names, and if landrun itself fails it
exits with 1. The command replaces the landrun process. To switch a script over,
add "alias landrun='assay-run landrun'".

The sandbox command restricts more, and needs no list of the files a program reads.`,
		Example: "  assay-run landrun --rox /usr --ro /etc --rw . --connect-tcp 443 --env PATH -- curl " +
			"https://example.org",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := landrun(a, l, args, env, unixSockets, addExec, ldd, level); err != nil {
				return console.ExitError{Code: 1, Err: err}
			}
			return nil
		},
		DisableFlagsInUseLine: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.SetInterspersed(false)
	fs.StringSliceVar(&l.RO, "ro", nil, "allow reading below `PATH`")
	fs.StringSliceVar(&l.ROX, "rox", nil, "allow reading and executing below `PATH`")
	fs.StringSliceVar(&l.RW, "rw", nil, "allow reading and writing below `PATH`")
	fs.StringSliceVar(&l.RWX, "rwx", nil, "allow reading, writing and executing below `PATH`")
	fs.IntSliceVar(&l.BindTCP, "bind-tcp", nil, "allow binding TCP sockets to `PORT`")
	fs.IntSliceVar(&l.ConnectTCP, "connect-tcp", nil, "allow TCP connections to `PORT`")
	fs.StringSliceVar(&unixSockets, "unix", nil, "allow reaching the unix socket at `PATH`: reading and writing it")
	fs.StringArrayVar(&env, "env", nil, "pass the variable `KEY` to the command, or set it with KEY=VALUE")
	fs.BoolVar(&addExec, "add-exec", false, "allow executing the command itself")
	fs.BoolVar(&ldd, "ldd", false, "allow the libraries that the command loads")
	fs.BoolVar(&l.UnrestrictedFilesystem, "unrestricted-filesystem", false, "do not restrict files")
	fs.BoolVar(&l.UnrestrictedNetwork, "unrestricted-network", false, "do not restrict TCP ports")
	fs.BoolVar(&l.UnrestrictedScoped, "unrestricted-scoped", false, "do not restrict signals and abstract sockets")
	fs.BoolVar(&l.IgnoreMissing, "ignore-missing", false, "ignore paths that do not exist")
	fs.BoolVar(&l.BestEffort, "best-effort", false,
		"run the command even if this kernel's Landlock cannot enforce every restriction")
	fs.BoolVar(&l.QuietOriginating, "log-disable-originating", false,
		"keep what is refused to the command itself out of the host's audit log")
	fs.BoolVar(&l.LogSubprocesses, "log-enable-subprocesses", false,
		"also audit what is refused to programs that the command executes")
	fs.BoolVar(&l.QuietSubdomains, "log-disable-subdomains", false,
		"keep what Landlock domains of the command's own refuse out of the audit log")
	fs.StringVar(&level, "log-level", os.Getenv("LANDRUN_LOG_LEVEL"),
		"log at `LEVEL`: error, info or debug (default error)")
	return cmd
}

func landrun(a *app, l *sandbox.Landrun, args, env, sockets []string, addExec, ldd bool, level string) error {
	if !slices.Contains([]string{"", "error", "info", "debug"}, level) {
		return fmt.Errorf("--log-level is %q, want error, info or debug", level)
	}
	if len(args) == 0 {
		return fmt.Errorf("no command given")
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	l.RW = append(l.RW, sockets...)
	if addExec {
		l.ROX = append(l.ROX, path)
	}
	if ldd {
		l.ROX = append(l.ROX, sandbox.Libraries(path)...)
	}
	var passed []string
	for _, e := range env {
		if strings.Contains(e, "=") {
			passed = append(passed, e)
		} else if v, ok := os.LookupEnv(e); ok {
			passed = append(passed, e+"="+v)
		}
	}
	if level == "info" || level == "debug" {
		a.say.Info("landrun: ro %q, rox %q, rw %q, rwx %q, bind %d, connect %d", l.RO, l.ROX, l.RW, l.RWX, l.BindTCP,
			l.ConnectTCP)
	}
	return l.Exec(path, args, passed)
}
