package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
)

func proveCommand(a *app) *cobra.Command {
	var layer string
	var seq int64
	cmd := &cobra.Command{
		Use:   "prove --layer LAYER --seq N [flags] BUNDLE...",
		Short: "Prove that a bundle contains a line, without showing the rest",
		Long: `prove prints a proof that a line is in a layer of a bundle. Anyone who knows the
bundle's identity can check the proof with "assay-run verify --proof", without the
bundle. The proof contains this line and no other. For several bundles, prove prints
one proof each. "-" reads a bundle from standard input.`,
		Example: `  assay-run prove --layer kernel --seq 7 run.tar.gz >line-7.json
  assay-run verify --proof line-7.json`,
		Args: someBundles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if seq < 0 {
				return console.WithHint(errors.New("no line given"), "name it with --seq; the first line is 0")
			}
			inputs, err := archive.OpenInputs(cmd.Context(), args, a.stdin)
			if err != nil {
				return err
			}
			defer inputs.Close()
			for _, in := range inputs.All {
				bundle, err := in.Open()
				if err != nil {
					return err
				}
				proof, err := bundle.Prove(cmd.Context(), layer, uint64(seq))
				if err != nil {
					return err
				}
				if err := a.printDocument(proof); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&layer, "layer", "kernel",
		"`LAYER` of the line: lifecycle, kernel, policy, sdk, turns or audit")
	cmd.Flags().Int64Var(&seq, "seq", -1, "the line with seq `N`; the first line is 0")
	cmd.Flags().Lookup("seq").DefValue = "0" // which the help leaves out
	return cmd
}
