package recording

import (
	"cmp"
	"fmt"

	"github.com/assay-run/assay-run/runner/policy"
)

// Turns says how calls become turns. Zero fields take their defaults.
type Turns struct {
	// CLITool and CheckTool are the names of the tools whose outputs are
	// classified, drive_cli and check_outcome.
	CLITool, CheckTool string
	// FieldBytes is how much is kept of one text, 16 KiB, and TurnBytes of a
	// turn's values together, 256 KiB.
	FieldBytes, TurnBytes int
}

// maxTurnBytes leaves room for the rest of a line.
const maxTurnBytes = 512 << 10

// Effective has the defaults for what is zero.
func (t Turns) Effective() Turns {
	t.CLITool = cmp.Or(t.CLITool, "drive_cli")
	t.CheckTool = cmp.Or(t.CheckTool, "check_outcome")
	t.TurnBytes = cmp.Or(t.TurnBytes, 256<<10)
	t.FieldBytes = cmp.Or(t.FieldBytes, min(16<<10, t.TurnBytes))
	return t
}

// Check reports why t cannot be used.
func (t Turns) Check() error {
	e := t.Effective()
	switch {
	case e.TurnBytes < 1 || e.TurnBytes > maxTurnBytes:
		return fmt.Errorf("%d bytes kept of a turn: 1 to %d are allowed", e.TurnBytes, maxTurnBytes)
	case e.FieldBytes < 1 || e.FieldBytes > e.TurnBytes:
		return fmt.Errorf("%d bytes kept of a field: 1 to the turn's %d are allowed", e.FieldBytes, e.TurnBytes)
	case len(e.CLITool) > policy.MaxName || len(e.CheckTool) > policy.MaxName:
		return fmt.Errorf("a tool name must have at most %d bytes", policy.MaxName)
	case e.CLITool == e.CheckTool:
		return fmt.Errorf("the tool %q cannot be both the command-line tool and the check tool", e.CLITool)
	}
	return nil
}
