package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/schema"
)

// influence follows, in the kernel layer, which files the command wrote and a check
// then opened or executed. The observation's goroutine feeds it; it is read once that
// has ended.
type influence struct {
	written map[string]bool // by the command; true for what was moved there, with what is in it
	checks  map[uint64]string
	read    map[string]map[string]bool // by check
	crowded bool
}

// Bounds of what is kept.
const (
	maxWritten     = 200_000
	maxInfluencing = 1000 // of one check
)

func newInfluence() *influence {
	return &influence{written: map[string]bool{}, checks: map[uint64]string{}, read: map[string]map[string]bool{}}
}

// event takes a line of the kernel layer.
func (f *influence) event(e *schema.KernelEvent) {
	if e.Class == schema.ClassCheck && e.Check != "" && !e.Baseline {
		f.checks[e.ExecID] = e.Check
	}
	if e.Failed() {
		return
	}
	for path, access := range e.Touches() {
		switch {
		case !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/"):
		case e.Class == schema.ClassCheck:
			if access&(schema.AccessRead|schema.AccessRun) != 0 {
				f.reads(f.checks[e.ExecID], path)
			}
		case access&(schema.AccessWrite|schema.AccessCreate) == 0 || e.Kind == schema.KindMkdir:
		case len(f.written) < maxWritten:
			f.written[path] = f.written[path] || e.Kind == schema.KindRename
		default:
			f.crowded = true
		}
	}
}

func (f *influence) reads(check, path string) {
	if check == "" || len(f.written) == 0 {
		return
	}
	_, wrote := f.written[path]
	for dir := filepath.Dir(path); !wrote && dir != "/"; dir = filepath.Dir(dir) {
		wrote = f.written[dir]
	}
	switch {
	case !wrote:
	case len(f.read[check]) >= maxInfluencing:
		f.crowded = true
	default:
		if f.read[check] == nil {
			f.read[check] = map[string]bool{}
		}
		f.read[check][path] = true
	}
}

// tell lists the files with each check of doc that they influenced. Protected paths
// are none of them: they are restored. A strict check that passed with the help of
// such a file proves nothing.
func (f *influence) tell(doc *schema.Contract, protects func(path string) bool, workdir string, strict *strictChecks) {
	home, _ := os.UserHomeDir()
	var doubts []string
	for i := range doc.Results {
		r := &doc.Results[i]
		var configuration, deciding []string
		for path := range f.read[r.Name] {
			if protects(path) || strict != nil && strict.covers(path, workdir) {
				continue
			}
			kind := contract.InfluenceKind(path, workdir, home)
			r.InfluencedBy = append(r.InfluencedBy, schema.Influence{Path: strings.ToValidUTF8(path, "\uFFFD"), Kind: kind})
			switch {
			case strict != nil && decisive(kind):
				deciding = append(deciding, path)
			case kind == schema.InfluenceConfiguration:
				configuration = append(configuration, path)
			}
		}
		slices.SortFunc(r.InfluencedBy, func(a, b schema.Influence) int { return strings.Compare(a.Path, b.Path) })
		if len(configuration) > 0 {
			doc.Reasons = append(doc.Reasons, "check "+r.Name+" read configuration that the command wrote, which may have changed its result: "+firstOf(configuration))
		}
		if len(deciding) == 0 {
			continue
		}
		why := "check " + r.Name + " read what the command had written and may decide the result: " + firstOf(deciding)
		if doc.Verdict == schema.VerdictPassed {
			doubts = append(doubts, why)
		} else {
			doc.Reasons = append(doc.Reasons, why)
		}
	}
	for _, why := range doubts {
		doc.Doubt(why)
	}
	if f.crowded {
		doc.Reasons = append(doc.Reasons, "the command wrote, or checks read, more files than influenced_by can list")
	}
}

// firstOf names the first of some files.
func firstOf(paths []string) string {
	slices.Sort(paths)
	return strings.ToValidUTF8(strings.Join(paths[:min(3, len(paths))], ", "), "\uFFFD")
}
