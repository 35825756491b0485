//go:build amd64 || arm64

package notify

// rootOf is the directory that p's absolute paths begin at. It is empty for the root of
// p's mount namespace.
func (o *Observer) rootOf(p *process) string {
	t := o.table
	if p.atRoot == t.roots {
		return ""
	}
	root, ok := o.link(p, "root")
	if ok && root != "/" {
		return root // and look it up each time: somebody may rename it
	}
	if ok && !t.rootsChange() {
		p.atRoot = t.roots
	}
	return ""
}

// rootsChange reports whether a call that may change a root may be unfinished. Such a call
// is finished when its thread makes another call, or has ended.
func (t *table) rootsChange() bool {
	for tid, p := range t.changing {
		if p.holds(tid) {
			return true
		}
		delete(t.changing, tid)
	}
	return false
}
