package main

import (
	"errors"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/archive/render"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
)

// reportMemory is where the collector begins to work harder: a page of the most events is some 100 MB
// while it is made, and would otherwise take twice that.
const reportMemory = 128 << 20

func reportCommand(a *app) *cobra.Command {
	var output string
	var unverified bool
	cmd := &cobra.Command{
		Use:   "report -o FILE [flags] BUNDLE...",
		Short: "Write one HTML page about bundles",
		Long: `report writes one HTML file that needs no network and no server: what the run did
in swimlanes of time, its processes, calls and output, the terminal recording,
and, in words, what may be claimed from it. With two bundles it also shows what
differs; with more, a table of them.

The page shows up to 100,000 events. If there are more, it shows those that matter
most and an even sample of the rest, and says so. Everything works from the
keyboard; "?" lists the keys.`,
		Example: "  assay-run report -o report.html run.tar.gz\n  assay-run report -o nightly.html nightly/*.tar.gz",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return a.usage(cmd, errors.New("report takes at least one bundle"))
			case output == "":
				return a.usage(cmd, errors.New(`-o is missing: name the file, or "-" for stdout`))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(reportMemory)
			}
			opt := view.Options{Unverified: unverified, Follow: evaluation.Follow(nil)}
			set, err := a.openWith(cmd.Context(), args, opt)
			if err != nil {
				return err
			}
			defer set.Close()
			ctx, bar := a.progress(cmd.Context(), "writing the report", output == "-")
			defer bar.Done()
			write := func(w io.Writer) error {
				return render.WriteHTML(ctx, w, "assay-run "+version(), set.Bundles, bar.Item)
			}
			if output == "-" {
				return write(a.stdout)
			}
			return console.WriteFile(output, write)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to `FILE`")
	cmd.Flags().BoolVar(&unverified, "unverified", false, "also report on bundles that do not verify")
	return cmd
}
