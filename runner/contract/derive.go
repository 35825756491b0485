package contract

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/schema/contractfile"
)

// DefaultMaxAttempts is the default limit on attempts of a generator.
const DefaultMaxAttempts = 3

// Generator returns a model's answer to a prompt.
type Generator func(ctx context.Context, prompt string) (string, error)

// DeriveOptions configure Derive.
type DeriveOptions struct {
	// Intent is the task, in the words of the person who wants it done.
	Intent string
	// Generator answers the prompts.
	Generator Generator
	// MaxAttempts limits the generator's attempts; 0 means DefaultMaxAttempts.
	MaxAttempts int
	// RepoDir is the repository that the prompt summarises; empty: none.
	RepoDir string
	// RepoSummary replaces the summary of RepoDir; empty: none.
	RepoSummary string
	// Ignored is called with the unknown keys of the accepted answer, such as "checks[0].reason". It may be nil.
	Ignored func(keys []string)
	// Failed is called for each attempt without a contract, counted from 1. It may be nil.
	Failed func(attempt int, err error)
}

// DeriveError means that no attempt gave a valid contract.
type DeriveError struct {
	Attempts int
	// Last is why the last attempt failed: the generator's error, the fault of its answer, or a
	// *[contractfile.InvalidError].
	Last error
}

func (e *DeriveError) Error() string {
	times := "attempts"
	if e.Attempts == 1 {
		times = "attempt"
	}
	return fmt.Sprintf("no valid contract after %d %s: %v", e.Attempts, times, e.Last)
}

func (e *DeriveError) Unwrap() error { return e.Last }

// Derive has the generator write a contract for the intent. If an answer is not a valid contract, the next prompt
// quotes it with the list of what to fix. If the generator fails, it gets the same prompt again. Both count as
// attempts. The returned contract has no problems. Errors are a *[DeriveError], ctx's, or about RepoDir.
func Derive(ctx context.Context, opts DeriveOptions) (*contractfile.Contract, error) {
	if strings.TrimSpace(opts.Intent) == "" {
		return nil, errors.New("derive a contract: the intent is empty; say what the task is")
	}
	task, err := taskPrompt(opts.Intent, opts.RepoDir, opts.RepoSummary)
	if err != nil {
		return nil, err
	}
	attempts := opts.MaxAttempts
	if attempts <= 0 {
		attempts = DefaultMaxAttempts
	}
	prompt := task
	var last error
	for n := 1; n <= attempts; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		answer, err := opts.Generator(ctx, prompt)
		if err == nil {
			var c *contractfile.Contract
			var ignored []string
			if c, ignored, err = extract(answer); err == nil {
				err = sayable(c)
			}
			if err == nil {
				if len(ignored) > 0 && opts.Ignored != nil {
					opts.Ignored(ignored)
				}
				return c, nil
			}
			prompt = task + fixPrompt(answer, err)
		} else {
			err = fmt.Errorf("the generator failed: %w", err)
		}
		last = err
		if opts.Failed != nil {
			opts.Failed(n, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, &DeriveError{Attempts: attempts, Last: last}
}

// sayable returns what is wrong with a contract from a model, which must have a description.
func sayable(c *contractfile.Contract) error {
	problems := c.Validate()
	if strings.TrimSpace(c.Description) == "" {
		problems = append(
			problems,
			contractfile.Problem{Check: -1, Code: "no_description",
				Message: `"description" is missing or empty; say in one sentence what is true when the task is done`},
		)
	}
	if len(problems) > 0 {
		return &contractfile.InvalidError{Problems: problems}
	}
	return nil
}
