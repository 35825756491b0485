package archive

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// Items decodes the lines of the wanted layers, hands out other wanted members, and names the
// line that is wrong.
func TestItems(t *testing.T) {
	f := sampleFiles(t)
	read := func() (got []string, err error) {
		f.reseal()
		name := filepath.Join(t.TempDir(), "a.tar")
		if err := os.WriteFile(name, joined(f.entries(canonical(f.manifest()))), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for it, err := range r.Items(t.Context(), schema.ResultPath, schema.PolicyPath, schema.KernelPath) {
			switch {
			case err != nil:
				return got, err
			case it.Member != nil:
				data, err := io.ReadAll(it.Member)
				if err != nil || string(data) != string(f[it.Path]) {
					t.Errorf("%s: %q, %v", it.Path, data, err)
				}
				got = append(got, it.Path)
			default:
				if lines := strings.Split(string(f[it.Path]), "\n"); string(it.Line) != lines[it.Number-1] {
					t.Errorf("%s: line %d is %q", it.Path, it.Number, it.Line)
				}
				got = append(got, fmt.Sprint(it.Path, it.Seq, it.Kernel != nil, it.Policy != nil))
			}
		}
		return got, nil
	}
	got, err := read()
	var want []string
	for i := range strings.Count(string(f[schema.KernelPath]), "\n") {
		want = append(want, fmt.Sprint(schema.KernelPath, i, true, false))
	}
	for i := range strings.Count(string(f[schema.PolicyPath]), "\n") {
		want = append(want, fmt.Sprint(schema.PolicyPath, i, false, true))
	}
	if want = append(want, schema.ResultPath); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, want %q (%v)", got, want, err)
	}
	first, _, _ := strings.Cut(string(f[schema.KernelPath]), "\n")
	f[schema.KernelPath] = []byte(first + "\n{}\n")
	got, err = read()
	if len(got) != 1 || err == nil || !strings.Contains(err.Error(), schema.KernelPath+": line 2: ") {
		t.Errorf("after %q: %v", got, err)
	}
}
