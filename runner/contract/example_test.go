package contract_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/contractfile"
)

// A contract is checked in a directory, whatever an agent says about its work.
func Example() {
	dir, err := os.MkdirTemp("", "contract-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "answer.txt"), []byte("41\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	c, err := contractfile.Parse([]byte(`
description: the answer is known
checks:
- {name: there_is_an_answer, command: test -s answer.txt}
- {name: it_is_right, command: grep -x 42 answer.txt}
`), config.YAML)
	if err != nil {
		fmt.Println(err)
		return
	}
	evaluation, err := contract.Evaluate(context.Background(), c, contract.Shell{Dir: dir}, contract.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, result := range evaluation.Results {
		fmt.Println(result.Name, result.Passed)
	}
	fmt.Println(evaluation.Verdict)
	// Output:
	// there_is_an_answer true
	// it_is_right false
	// failed
}
