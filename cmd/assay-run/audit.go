package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// auditFlag registers --audit, for a run and for serve.
func auditFlag(fs *pflag.FlagSet, into *[]string) {
	fs.Var((*texts)(into), "audit",
		"also write each call event to `FILE`, to stdout with \"-\", or to stderr with \"stderr\"; if the reader is "+
			"slow, events are dropped and counted; may be repeated")
}

// openAudit opens what --audit names. The files stay open until the program ends.
func openAudit(a *app, names []string) ([]runner.AuditSink, error) {
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

// redactSinks makes the sinks write no secret that r finds.
func redactSinks(sinks []runner.AuditSink, r *redact.Redactor) []runner.AuditSink {
	for i := range sinks {
		sinks[i].Writer = redactedLines{sinks[i].Writer, r}
	}
	return sinks
}

// redactedLines redacts JSON lines. Each Write has one line.
type redactedLines struct {
	w io.Writer
	r *redact.Redactor
}

func (l redactedLines) Write(b []byte) (int, error) {
	if _, err := l.w.Write(l.r.JSON(schema.AuditPath, b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
