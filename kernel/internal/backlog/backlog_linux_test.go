package backlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// record is the record with the number n. Few of them fill a chunk.
func record(n int) []byte {
	return append(fmt.Appendf(nil, "%d ", n), bytes.Repeat([]byte{byte(n)}, n%9000)...)
}

// files are those that this process has open in dir, by what proc says of their descriptors.
func files(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	for _, e := range entries {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); len(to) > len(dir) && to[:len(dir)] == dir {
			n++
		}
	}
	return n
}

// What is put into a queue comes out in its order, whatever of it was in memory and in a file.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	q := New(dir)
	const records = 3000 // 4.5 MB, of which memory has room for 2
	for i := range records {
		q.Put(record(i))
		if i%1000 == 500 {
			q.Mark(uint64(i))
		}
		if i%7 == 0 {
			q.Flush()
		}
	}
	if n := files(t, dir); n != 1 {
		t.Errorf("%d files are open, want 1", n)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("the file has a name: %v", left)
	}
	q.Close(nil)
	if n := len(q.chunks); n > 4_600_000/(chunkSize-9000)+2 {
		t.Errorf("%d chunks: some are almost empty", n)
	}
	var got int
	var marks []uint64
	if err := q.Each(func(b []byte) error {
		if !bytes.Equal(b, record(got)) {
			t.Fatalf("record %d is %.20q", got, b)
		}
		got++
		return nil
	}, func(n uint64) { marks = append(marks, n) }); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{500, 1500, 2500}; got != records || !slices.Equal(marks, want) {
		t.Errorf("%d records and the marks %d, want %d and %d", got, marks, records, want)
	}
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files are open at the end", n)
	}
}

// Two goroutines pass records on, with a file that comes and goes, or with memory alone.
func TestTwoGoroutines(t *testing.T) {
	for name, dir := range map[string]string{"with a file": t.TempDir(), "without": ""} {
		t.Run(name, func(t *testing.T) {
			q := New(dir)
			const records = 20000
			end := errors.New("the end")
			go func() {
				for i := range records {
					q.Put(record(i))
				}
				q.Close(end)
			}()
			got := 0
			if err := q.Each(func(b []byte) error {
				if !bytes.Equal(b, record(got)) {
					t.Errorf("record %d is %.20q", got, b)
				}
				got++
				return nil
			}, nil); err != end {
				t.Errorf("the end is %v", err)
			}
			if got != records {
				t.Errorf("%d records of %d", got, records)
			}
		})
	}
}

// Where the file takes no more, because its disk is full or it is as large as it may be, Put waits and nothing is lost.
func TestFullFile(t *testing.T) {
	for name, fill := range map[string]func(*Queue){
		"disk": func(q *Queue) {
			full, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", q.file.Fd())) // writing to it fails
			if err != nil {
				t.Fatal(err)
			}
			q.file.Close()
			q.file = full
		},
		"bound": func(q *Queue) { q.room = q.size },
	} {
		t.Run(name, func(t *testing.T) {
			q, records, put := New(t.TempDir()), 0, make(chan struct{})
			for q.file == nil {
				q.Put(record(records))
				records++
			}
			fill(q)
			before := records
			go func() {
				defer close(put)
				for range 3000 {
					q.Put(record(records))
					records++
				}
				q.Close(nil)
			}()
			got := 0
			if err := q.Each(func(b []byte) error {
				if !bytes.Equal(b, record(got)) {
					t.Errorf("record %d is %.20q", got, b)
				}
				got++
				return nil
			}, nil); err != nil {
				t.Fatal(err)
			}
			<-put
			if got != before+3000 {
				t.Errorf("%d records of %d", got, before+3000)
			}
		})
	}
}

// Who puts records into a queue that nobody reads any more does not wait, and no file stays open.
func TestReaderThatFails(t *testing.T) {
	for name, dir := range map[string]string{"with a file": t.TempDir(), "without": ""} {
		t.Run(name, func(t *testing.T) {
			q, put := New(dir), make(chan struct{})
			go func() {
				defer close(put)
				for i := range 5000 {
					q.Put(record(i))
				}
				q.Close(nil)
			}()
			failed := errors.New("failed")
			if err := q.Each(func([]byte) error { return failed }, nil); err != failed {
				t.Errorf("the error is %v", err)
			}
			<-put
			if dir != "" && files(t, dir) != 0 {
				t.Error("the file is open")
			}
		})
	}
}
