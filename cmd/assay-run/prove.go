package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
)

func (a *app) proveCommand() *cobra.Command {
	var layer string
	var seq int64
	cmd := &cobra.Command{
		Use:   "prove --layer LAYER --seq N [flags] BUNDLE",
		Short: "Prove that a bundle contains a line, without showing the rest",
		Long: `prove prints a proof that a line is in a layer of a bundle. Whoever knows the
bundle's identity can check the proof with "assay-run verify --proof", without the
bundle. The proof contains this line and no other.`,
		Example: `  assay-run prove --layer kernel --seq 7 run.tar.gz >line-7.json
  assay-run verify --proof line-7.json`,
		Args: oneBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			if seq < 0 {
				return console.WithHint(errors.New("no line given"), "name it with --seq; the first line is 0")
			}
			proof, err := archive.Prove(cmd.Context(), args[0], layer, uint64(seq))
			if err != nil {
				return err
			}
			return a.printDocument(proof)
		},
	}
	cmd.Flags().StringVar(&layer, "layer", "kernel", "`LAYER` of the line: lifecycle, kernel, policy, sdk, turns or audit")
	cmd.Flags().Int64Var(&seq, "seq", -1, "seq `N` of the line, counted from 0")
	return cmd
}

// verifyProof checks the proof in a file.
func (a *app) verifyProof(name string, bundles []string) error {
	if len(bundles) > 0 {
		return console.WithHint(errors.New("--proof is checked without a bundle"), "compare the identity that it prints with the bundle's")
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := archive.CheckProof(f)
	if errors.Is(err, archive.ErrProof) {
		return console.ExitError{Code: exitStatus[archive.Invalid], Err: fmt.Errorf("%s: %w", name, err)}
	}
	if err != nil {
		return console.ExitError{Code: runner.ExitRunner, Err: err}
	}
	_, err = fmt.Fprintf(a.stdout, "%s: ok\nline %d of layer %s is in the bundle with the identity %s\n%s\n", console.Printable(name), p.Seq, console.Printable(p.Layer), p.Identity, console.Printable(p.Line))
	return err
}
