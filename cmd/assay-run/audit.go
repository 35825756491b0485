package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/runner"
)

// auditFlag registers where call events go besides the bundle, in a run as in
// serve.
func auditFlag(fs *pflag.FlagSet, into *[]string) {
	fs.StringArrayVar(into, "audit", nil, "also write each call event to `FILE`, - (stdout) or stderr, dropping and counting what a slow reader misses; may be repeated")
}

// openAudit opens what --audit names. The files are open until we end.
func (a *app) openAudit(names []string) ([]runner.AuditSink, error) {
	var sinks []runner.AuditSink
	for _, name := range names {
		switch name {
		case "-":
			sinks = append(sinks, runner.AuditSink{Name: "stdout", Writer: a.stdout})
		case "stderr":
			sinks = append(sinks, runner.AuditSink{Name: "stderr", Writer: a.stderr})
		default:
			f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				return nil, fmt.Errorf("--audit: %w", err)
			}
			sinks = append(sinks, runner.AuditSink{Name: name, Writer: f})
		}
	}
	return sinks, nil
}
