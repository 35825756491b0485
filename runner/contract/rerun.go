package contract

import (
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// rerun is a POSIX shell command line that runs the check by hand as the runner did: the same shell, directory, time
// limit and empty standard input. It needs timeout(1), and exits with 137 on timeout.
func rerun(check schema.Check, workdir string) string {
	cd := ""
	if workdir != "" {
		cd = "cd " + quote(workdir) + " && "
	}
	return fmt.Sprintf("(%stimeout -s KILL %d sh -c %s) </dev/null 2>&1", cd, check.TimeoutSecs, quote(check.Command))
}

// quote quotes s as one shell word.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
