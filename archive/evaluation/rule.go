package evaluation

import (
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Limits of one rule.
const (
	maxFindings = 20   // in each list
	maxEvents   = 20   // in one finding
	maxKeys     = 1000 // distinct findings that are recognised
)

// rule collects the findings of one rule.
type rule struct {
	name             string
	findings, doubts []schema.Finding
	keys, doubted    map[string]int // index in the list, by text, program and tool call
	more             int            // number of findings and doubts beyond maxFindings
}

func (r *rule) find(f schema.Finding)  { r.add(&r.findings, r.keys, f) }
func (r *rule) doubt(f schema.Finding) { r.add(&r.doubts, r.doubted, f) }

func (r *rule) add(list *[]schema.Finding, keys map[string]int, f schema.Finding) {
	f.Rule = r.name
	f.Text, f.Program = schema.OneLine(f.Text), schema.OneLine(f.Program) // they have names from outside
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
