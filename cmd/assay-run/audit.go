package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/runner"
)

// auditFlag registers --audit, for a run and for serve.
func auditFlag(fs *pflag.FlagSet, into *[]string) {
	fs.Var((*texts)(into), "audit",
		"also write each call event to `FILE`, to stdout with \"-\", or to stderr with \"stderr\"; if the reader is "+
			"slow, events are dropped and counted; may be repeated")
}

// openAudit opens what --audit names. The files stay open until the program ends.
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
