package layer

import (
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// A class is a rule of schema/surface, applied to the program that the process
// executes.
func TestClassDependsOnTheProgram(t *testing.T) {
	b, lines := collect(t, Options{})
	push(t, b, forkEvent(0, 1, 10), openEvent(1, 10, "/usr/lib/python3.13/os.py", cloexec, 0),
		execEvent(2, 10, "/usr/bin/python3.13"),
		openEvent(3, 10, "/usr/lib/python3.13/os.py", cloexec, 0))
	b.Close()
	if before, after := (*lines)[1].Class, (*lines)[3].Class; before != schema.ClassAgent ||
		after != schema.ClassRuntime {
		t.Errorf("the class is %v before the exec and %v after it", before, after)
	}
}

func TestDoubtfulPathsAreNeverNoise(t *testing.T) {
	for name, change := range map[string]func(*kernel.Event){
		"read from user memory": func(e *kernel.Event) { e.UserMemory = true },
		"truncated":             func(e *kernel.Event) { e.Truncated = schema.FieldValue },
		"deleted":               func(e *kernel.Event) { e.Marks = schema.MarkDeleted },
		"relative":              func(e *kernel.Event) { e.Marks = schema.MarkRelative },
		"unreachable":           func(e *kernel.Event) { e.Marks = schema.MarkUnreachable },
		"without a result":      func(e *kernel.Event) { e.HasResult = false },
	} {
		b, lines := collect(t, Options{})
		ev := openEvent(2, 10, "/etc/ld.so.cache", cloexec, 0)
		change(&ev)
		push(t, b, forkEvent(0, 1, 10), ev)
		b.Close()
		if e := (*lines)[1]; e.Class != schema.ClassAgent {
			t.Errorf("a path that is %s is %v", name, e.Class)
		}
	}
}
