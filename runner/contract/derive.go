package contract

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// DefaultMaxAttempts is how often a generator is asked when nothing is said.
const DefaultMaxAttempts = 3

// Generator gives a model's answer to a prompt.
type Generator func(ctx context.Context, prompt string) (string, error)

// DeriveOptions say what to derive a contract from.
type DeriveOptions struct {
	// Intent is the task, in the words of whoever wants it done.
	Intent string
	// Generator answers the prompts.
	Generator Generator
	// MaxAttempts is how often the generator is asked; 0 means
	// DefaultMaxAttempts.
	MaxAttempts int
	// RepoDir is the repository the prompt summarises; empty for none.
	RepoDir string
	// RepoSummary takes the place of the summary that is made of RepoDir; empty
	// for none.
	RepoSummary string
	// Ignored is called with the unknown keys of the accepted answer, such as "checks[0].reason". It may
	// be nil.
	Ignored func(keys []string)
	// Failed is called for each attempt that gave no contract, starting with 1. It may be nil.
	Failed func(attempt int, err error)
}

// DeriveError is returned when no attempt gave a valid contract.
type DeriveError struct {
	Attempts int
	// Last is why the last attempt failed: the generator's error, what was
	// wrong with its answer, or an *[InvalidError].
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

// Derive has the generator write a contract for the intent. An answer that is
// no valid contract goes into the next prompt with the list of what to fix; a
// generator that fails is asked again with the same prompt, and both count as
// attempts. The contract returned has no problems. Errors are a *[DeriveError],
// ctx's, or about RepoDir.
func Derive(ctx context.Context, opts DeriveOptions) (*Contract, error) {
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
			var c *Contract
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

// sayable returns what is wrong with a contract that a model wrote, which must have a description.
func sayable(c *Contract) error {
	problems := c.Validate()
	if strings.TrimSpace(c.Description) == "" {
		problems = append(
			problems,
			Problem{Check: -1, Code: "no_description",
				Message: `"description" is missing or empty; say in one sentence what is true when the task is done`},
		)
	}
	if len(problems) > 0 {
		return &InvalidError{problems}
	}
	return nil
}
