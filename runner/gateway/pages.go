package gateway

import "sync"

// maxCursors bounds the cursors that are remembered of a client.
const maxCursors = 4096

// pages remembers which page a tool's cursor leads to.
type pages struct {
	mu   sync.Mutex
	next map[string]int // by tool and cursor
}

// pages is the number of the page that a call got, nil where there are none or it is not known which.
func (c *call) pages() *int {
	next := textMember(c.output, "nextCursor")
	cursor := textMember(c.action.Parameters, "cursor")
	if next == nil && cursor == nil {
		return nil
	}
	p := &c.client.cursors
	p.mu.Lock()
	defer p.mu.Unlock()
	page, known := 1, true
	if cursor != nil {
		page, known = p.next[c.action.Tool+"\x00"+*cursor]
		page = max(1, page)
	}
	if next != nil && len(*next) <= maxIdentifier && len(p.next) < maxCursors {
		if p.next == nil {
			p.next = map[string]int{}
		}
		p.next[c.action.Tool+"\x00"+*next] = page + 1
	}
	if !known {
		return nil
	}
	return &page
}
