package runner

import (
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/evalfile"
)

// keepEvaluation puts what the evaluation file says into the bundle, before anything is started.
func keepEvaluation(log *evidence.Log, file string) error {
	if file == "" {
		return nil
	}
	doc, err := evalfile.Load(file)
	if err != nil {
		e := schema.ResultError{Code: "evaluation_unusable", Message: err.Error(),
			Hint: "docs/evaluation.md describes the file"}
		return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: e}
	}
	doc.RunID = log.RunID
	return log.Put(schema.EvaluationPath, doc)
}
