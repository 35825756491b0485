package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/sign"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

func signCommand(a *app) *cobra.Command {
	var key signingKey
	cmd := &cobra.Command{
		Use:   "sign (--key KEY | --command CMD) BUNDLE...",
		Short: "Sign bundles, so that others can check who made them",
		Long: `sign verifies each bundle and writes a signature beside it, in
BUNDLE.intoto.jsonl: a DSSE envelope around an in-toto statement that names the
bundle's identity, its verdict, the digests of its contract and policy, and its
observation health. The bundle is not changed. Signing again with the same key
replaces that key's signature; signatures by other keys stay.

KEY is the file of an ed25519 private key, PKCS#8 or OpenSSH, that only you can
read; "agent" for the one ed25519 key in your ssh-agent; or agent:FINGERPRINT.
CMD is a shell command that gets the bytes to sign on its standard input and
prints the signature, 64 raw bytes or base64.`,
		Example: `  ssh-keygen -t ed25519 -f ci-key
  assay-run sign --key ci-key run.tar.gz
  assay-run verify --key ci-key.pub run.tar.gz`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return console.WithHint(fmt.Errorf("sign needs a bundle"), "as in: assay-run sign --key KEY run.tar.gz")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			signer, err := key.load()
			if err != nil {
				return err
			}
			if signer == nil {
				return console.WithHint(fmt.Errorf("sign needs a key"), "give --key FILE, --key agent or --command CMD")
			}
			for _, path := range args {
				if err := signBundle(cmd.Context(), a, path, signer); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&key.key, "key", "", "sign with the private key in `FILE`, or with \"agent\"")
	cmd.Flags().StringVar(&key.command, "command", "", "sign with the shell command `CMD`")
	return cmd
}

func signBundle(ctx context.Context, a *app, path string, signer sign.Signer) error {
	verifying, bar := console.NewProgress(ctx, a.stderr, "verifying")
	report, err := archive.Verify(verifying, path)
	bar.Done()
	if err != nil {
		return err
	}
	if !report.OK() {
		return console.ExitError{Code: exitStatus[report.Class()],
			Err: console.WithHint(fmt.Errorf("%s does not verify and was not signed: %w", path, &report.Problems[0]),
				"assay-run verify %s lists every problem", path)}
	}
	file, err := sign.Bundle(ctx, path, report.Identity, signer)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: signed %s\n", schema.OneLine(file), report.Identity)
	return err
}

// signingKey is the flags that say who signs.
type signingKey struct{ key, command string }

// load makes the signer, or nil if no flag names one.
func (k signingKey) load() (sign.Signer, error) {
	switch name, fingerprint, _ := strings.Cut(k.key, ":"); {
	case k.key != "" && k.command != "":
		return nil, fmt.Errorf("a key and a signing command were both given: use one")
	case k.command != "":
		return sign.Command(k.command), nil
	case k.key == "":
		return nil, nil
	case name == "agent":
		return sign.Agent(os.Getenv("SSH_AUTH_SOCK"), fingerprint)
	}
	return sign.LoadKey(k.key)
}

// hide removes the ssh-agent from our environment if it signs the bundle, so that the command does
// not inherit it.
func (k signingKey) hide() {
	if name, _, _ := strings.Cut(k.key, ":"); name == "agent" {
		os.Unsetenv("SSH_AUTH_SOCK")
	}
}
