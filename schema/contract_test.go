package schema

import "testing"

// TestWeighed asks what changes of protected paths make of the verdict of the checks.
func TestWeighed(t *testing.T) {
	inCheck := ProtectedChange{Path: "a", Change: "modified", During: DuringCheck, Restored: true}
	lost := ProtectedChange{Path: "a", Change: "modified", During: DuringAgent}
	fixed := ProtectedChange{Path: "a", Change: ChangeImmutable, During: DuringAgent, Restored: true}
	cache := ProtectedChange{Path: "a/__pycache__", Change: ChangeAdded, During: DuringCheck, Restored: true}
	for name, c := range map[string]struct {
		checks  string
		changes []ProtectedChange
		unsound []string
		want    string
	}{
		"nothing changed":                {VerdictPassed, nil, nil, VerdictPassed},
		"a cache was added":              {VerdictPassed, []ProtectedChange{cache}, nil, VerdictPassed},
		"changed in a check that passed": {VerdictPassed, []ProtectedChange{inCheck}, nil, VerdictInconclusive},
		"changed in a check, one fails":  {VerdictFailed, []ProtectedChange{inCheck}, nil, VerdictFailed},
		"not restored, one fails":        {VerdictFailed, []ProtectedChange{lost, inCheck}, nil, VerdictInconclusive},
		"made immutable":                 {VerdictPassed, []ProtectedChange{inCheck, fixed}, nil, VerdictFailed},
		"unsound":                        {VerdictFailed, []ProtectedChange{fixed}, []string{"x"}, VerdictInconclusive},
	} {
		doc := Contract{ProtectedChanges: c.changes, Unsound: c.unsound}
		if got := doc.Weighed(c.checks); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
