package sandbox

import (
	"runtime"
	"testing"
)

// TestEveryRefusedCallHasANumber finds names in callClasses that the filter would leave out.
func TestEveryRefusedCallHasANumber(t *testing.T) {
	some := conditions(true)
	seen := map[string]bool{}
	for _, class := range callClasses {
		for _, name := range class.calls {
			_, number := numbers[name]
			_, condition := some[name]
			_, own := foreign[name]
			if !number && !condition && !own && runtime.GOARCH == "amd64" {
				t.Errorf("%s of %s is not refused", name, class.name)
			}
			if seen[name] {
				t.Errorf("%s has two rules", name)
			}
			seen[name] = true
		}
	}
	for name := range numbers {
		if !seen[name] {
			t.Errorf("%s has no rule", name)
		}
	}
}
