package redact

import "maps"

// account counts what was taken out.
type account struct {
	total   uint64
	byRule  map[string]uint64
	byField map[string]uint64
}

func (r *Redactor) count(rule, field string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account.total++
	r.account.byRule[rule]++
	r.account.byField[field]++
}

// Counts tells how many secrets were taken out so far, by rule and by field.
func (r *Redactor) Counts() (total uint64, byRule, byField map[string]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.account.total, maps.Clone(r.account.byRule), maps.Clone(r.account.byField)
}

// NotSearched names the kinds of content that no Redactor looks into.
func NotSearched() []string {
	return []string{"compressed content", "encrypted content", "images and other binary formats"}
}

// NotSearched names what secrets are not found in.
func (r *Redactor) NotSearched() []string {
	list := NotSearched()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missed {
		list = append(list, "unmarked copies of secrets that the run showed after too many others")
	}
	return list
}

// Known is how many secrets are known.
func (r *Redactor) Known() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.have)
}
