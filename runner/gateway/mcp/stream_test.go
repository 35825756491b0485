package mcp

import "testing"

// What is kept for a client that does not read is limited, and what a reader has got is kept for its return.
func TestAStreamIsBounded(t *testing.T) {
	st := newStream("s")
	told := 0
	for range 3 * maxKept {
		if st.add([]byte("{}")) {
			told++
		}
	}
	if messages, at, _ := st.after(0); len(messages) != maxKept || at != 2*maxKept || told != 1 {
		t.Errorf("%d messages are kept, from %d on; told %d times that some were dropped", len(messages), at, told)
	}
	large := newStream("s")
	for range 10 {
		large.add(make([]byte, maxKeptLen/4))
	}
	if messages, _, _ := large.after(0); len(messages) != 4 {
		t.Errorf("%d quarters are kept", len(messages))
	}
	read := newStream("s")
	for i := range 3 * maxGiven {
		if read.add([]byte("{}")) {
			t.Fatal("told that something was dropped which a reader had")
		}
		read.given(i + 1)
	}
	if !read.has(2*maxGiven) || read.has(maxGiven) {
		t.Error("a reader that comes back finds the wrong messages")
	}
}
