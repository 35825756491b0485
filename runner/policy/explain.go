package policy

import "fmt"

// Explanation says whether a call may be made, and why.
type Explanation struct {
	Tool     string `json:"tool"`
	Decision string `json:"decision"`       // "allow" or "deny"
	Rule     string `json:"rule,omitempty"` // the first that denies: the one an answer to the call names
	// Rulings are those of all rules that cover the call, in the order in which
	// they are asked.
	Rulings []Ruling `json:"rulings"`
}

// Ruling is what one rule, or a list of tools, says about a call.
type Ruling struct {
	Rule     string `json:"rule"` // its name
	Kind     string `json:"kind"`
	Decision string `json:"decision"` // "allow" or "deny"
	Param    string `json:"param,omitempty"`
	// Reason is fit to be shown: it never quotes a parameter's value.
	Reason string `json:"reason,omitempty"`
}

// Explain decides a call as [Set.Check] does, and says what each rule that covers
// it has to do with that. The call counts against no rate limit, and is decided as
// if it were the first.
func (s *Set) Explain(c *Call) Explanation {
	e := Explanation{Tool: c.Tool, Decision: "allow", Rulings: []Ruling{}}
	add := func(r Ruling, denies bool) {
		r.Decision = "allow"
		if denies {
			r.Decision, e.Decision = "deny", "deny"
			if e.Rule == "" {
				e.Rule = r.Rule
			}
		}
		e.Rulings = append(e.Rulings, r)
	}
	listed := s.listed(c.Tool)
	for _, v := range listed {
		add(Ruling{Rule: v.Rule, Kind: v.Kind, Reason: v.Reason}, true)
	}
	if len(listed) == 0 && s.tools.limited {
		add(Ruling{Rule: AllowList, Kind: DenyTool, Reason: "the tool is on the list of allowed tools"}, false)
	}
	var limits []*rule
	for _, r := range *s.rules.Load() {
		switch {
		case !r.covers(c.Tool):
		case r.rate != nil:
			limits = append(limits, r)
		default:
			v, denies := r.check1(c)
			if !denies {
				v.Reason = ""
			}
			add(Ruling{Rule: v.Rule, Kind: v.Kind, Param: v.Param, Reason: v.Reason}, denies)
		}
	}
	for _, r := range limits {
		calls, every := r.rate.Limit()
		add(Ruling{Rule: r.Name, Kind: r.Rule.Rule, Reason: fmt.Sprintf("at most %d calls in %v", calls, every)},
			calls == 0)
	}
	return e
}
