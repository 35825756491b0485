package evaluation

import (
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Bounds of what is kept of one rule.
const (
	maxFindings = 20
	maxEvents   = 20   // of one finding
	maxKeys     = 1000 // findings that are told apart
)

// rule collects what was found for one rule.
type rule struct {
	name             string
	findings, doubts []schema.Finding
	keys, doubted    map[string]int // by text and program, where it is in the list
	more             int
}

func (r *rule) find(f schema.Finding)  { r.add(&r.findings, r.keys, f) }
func (r *rule) doubt(f schema.Finding) { r.add(&r.doubts, r.doubted, f) }

func (r *rule) add(list *[]schema.Finding, keys map[string]int, f schema.Finding) {
	f.Rule = r.name
	key := f.Text + "\x00" + f.Program + "\x00" + f.ToolCallID
	if at, ok := keys[key]; ok {
		if at < len(*list) && len((*list)[at].Events) < maxEvents {
			(*list)[at].Events = append((*list)[at].Events, f.Events...)
		}
		return
	}
	if len(keys) < maxKeys {
		keys[strings.Clone(key)] = len(*list)
	}
	if len(*list) >= maxFindings {
		r.more++
		return
	}
	f.Text, f.Program, f.ToolCallID = strings.Clone(f.Text), strings.Clone(f.Program), strings.Clone(f.ToolCallID)
	*list = append(*list, f)
}
