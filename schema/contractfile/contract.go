package contractfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// maxFileBytes limits a contract file. Commands belong in scripts of the repository, not in the contract.
const maxFileBytes = 256 << 10

// defaultTimeoutSecs is the wall clock limit of a check that sets none.
const defaultTimeoutSecs = 120

// Contract is an outcome contract with all defaults filled in. It is plain data: the result of [Parse] may still have
// problems, see [Contract.Validate].
type Contract schema.ContractDefinition

// Validate lists every problem of the contract, in order. A contract without problems can be evaluated.
func (c *Contract) Validate() []Problem {
	v := &validation{first: make(map[string]int)}
	v.check = -1
	switch n := len(c.Checks); {
	case n == 0:
		v.add("no_checks", "no checks: a contract needs at least one command that proves the task is done")
	case n > maxChecks:
		v.add("too_many_checks", "%d checks; at most %d are allowed", n, maxChecks)
	}
	v.protected(c.Protected)
	v.tests(c.Tests)
	for i, check := range c.Checks {
		v.check, v.label = i, strings.TrimSpace(check.Name)
		v.name()
		v.command(check.Command)
		v.expectations(check)
	}
	return v.problems
}

// file is a contract as written. Absent and null values mean the default.
type file struct {
	Description *string     `json:"description"`
	Checks      []fileCheck `json:"checks"`
	Protected   []string    `json:"protected"`
	Tests       *string     `json:"tests"`
}

type fileCheck struct {
	Name           string  `json:"name"`
	Command        string  `json:"command"`
	ExpectExitZero *bool   `json:"expect_exit_zero"`
	OutputContains *string `json:"output_contains"`
	TimeoutSecs    *int64  `json:"timeout_secs"`
}

// Load reads the contract at path, which must be a regular file, and returns it with the digest of its bytes,
// "sha256:" and hex. The format follows from the extension (.json, .yaml, .yml), otherwise from the first character.
// Load does not validate.
func Load(path string) (*Contract, string, error) {
	data, err := config.ReadFile(path, maxFileBytes)
	if err != nil {
		return nil, "", fmt.Errorf("read contract: %w", err)
	}
	c, err := Parse(data, config.FormatOf(path, data))
	if err != nil {
		return nil, "", fmt.Errorf("contract %s: %w", path, err)
	}
	return c, digestOf(data), nil
}

// Loaded is a contract that was read and has no problems.
type Loaded struct {
	Contract *Contract
	Digest   string // of the file
}

// LoadValid is Load for a contract that will be evaluated. If the contract has problems, the error is an
// *[InvalidError] that lists all of them.
func LoadValid(path string) (*Loaded, error) {
	c, digest, err := Load(path)
	if err != nil {
		return nil, err
	}
	if problems := c.Validate(); len(problems) > 0 {
		return nil, fmt.Errorf("contract %s: %w", path, &InvalidError{problems})
	}
	return &Loaded{c, digest}, nil
}

// Parse decodes a contract and fills in the defaults. Unknown keys, duplicate keys, values of a wrong type and a
// missing description are errors that name the key.
func Parse(data []byte, format config.Format) (*Contract, error) {
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("larger than %d bytes; move long commands into scripts", maxFileBytes)
	}
	var f file
	if err := config.Decode(data, format, &f); err != nil {
		return nil, err
	}
	if f.Description == nil {
		return nil,
			errors.New(`the key "description" is missing: say in one sentence what is true when the task is done, or write ""`)
	}
	c := &Contract{Description: *f.Description, Protected: f.Protected, Checks: make([]schema.Check, len(f.Checks))}
	if f.Tests != nil {
		if c.Tests = path.Clean(*f.Tests); *f.Tests == "" {
			return nil, errors.New(`the key "tests" is empty: name a directory, or omit the key`)
		}
	}
	for i, fc := range f.Checks {
		c.Checks[i] = schema.Check{
			Name:           strings.TrimSpace(fc.Name),
			Command:        fc.Command,
			ExpectExitZero: fc.ExpectExitZero == nil || *fc.ExpectExitZero,
			OutputContains: fc.OutputContains,
			TimeoutSecs:    defaultTimeoutSecs,
		}
		if fc.TimeoutSecs != nil {
			c.Checks[i].TimeoutSecs = *fc.TimeoutSecs
		}
	}
	return c, nil
}

// Digest identifies the contract file at path by its bytes: "sha256:" and hex.
func Digest(path string) (string, error) {
	data, err := config.ReadFile(path, maxFileBytes)
	if err != nil {
		return "", err
	}
	return digestOf(data), nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
