//go:build linux

package agentlog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// TestHostileLogs: what an agent can do with its log between two polls. Known makes the follower poll, so nothing
// depends on timing.
func TestHostileLogs(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	for _, c := range []struct {
		name  string
		acts  []func(t *testing.T, path string)
		lines []string
		codes []string
	}{
		{"it never comes", nil, nil, []string{"missing"}},
		{"it comes late and grows", acts(
			func(t *testing.T, p string) {},
			func(t *testing.T, p string) { write(t, p, "a\nb") },
			func(t *testing.T, p string) { write(t, p, "b\n\n  \nc\n") },
		), []string{"1:a", "2:bb", "5:c"}, nil},
		{"its last line has no newline", acts(func(t *testing.T, p string) {
			write(t, p, "a\nb")
		}), []string{"1:a", "2:b"}, nil},
		{"it is empty", acts(func(t *testing.T, p string) { write(t, p, "\n \n") }), nil, []string{"empty"}},
		{"it has a bad line", acts(func(t *testing.T, p string) {
			write(t, p, "a\nbad\nc\n")
		}), []string{"1:a", "2:bad", "3:c"}, []string{"bad_line"}},
		{"it has a line that is too long", acts(func(t *testing.T, p string) {
			write(t, p, "a\n"+long+"\nc\n")
		}), []string{"1:a", "3:c"}, []string{"bad_line"}},
		{"its last line is too long", acts(func(t *testing.T, p string) {
			write(t, p, "a\n"+long)
		}), []string{"1:a"}, []string{"bad_line"}},
		{"it is cut", acts(
			func(t *testing.T, p string) { write(t, p, "a\nb\nto") },
			func(t *testing.T, p string) {
				if err := os.Truncate(p, 0); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, p string) { write(t, p, "c\n") },
		), []string{"1:a", "2:b", "1:c"}, []string{"truncated"}},
		{"it is cut before it had anything", acts(
			func(t *testing.T, p string) { write(t, p, "") },
			func(t *testing.T, p string) { os.Truncate(p, 0); write(t, p, "a\n") },
		), []string{"1:a"}, nil},
		{"it is replaced", acts(
			func(t *testing.T, p string) { write(t, p, "a\n") },
			func(t *testing.T, p string) {
				write(t, p, "b\n")
				write(t, p+".new", "c\n")
				if err := os.Rename(p+".new", p); err != nil {
					t.Fatal(err)
				}
			},
		), []string{"1:a", "2:b", "1:c"}, []string{"replaced"}},
		{"it is a link", acts(func(t *testing.T, p string) {
			write(t, p+".target", "secret\n")
			if err := os.Symlink(p+".target", p); err != nil {
				t.Fatal(err)
			}
		}), nil, []string{"not_a_file"}},
		{"it becomes a link", acts(
			func(t *testing.T, p string) { write(t, p, "a\n") },
			func(t *testing.T, p string) { os.Remove(p); os.Symlink("/etc/passwd", p) },
		), []string{"1:a"}, []string{"replaced", "not_a_file"}},
		{"it is a pipe", acts(func(t *testing.T, p string) {
			if err := unix.Mkfifo(p, 0o600); err != nil {
				t.Fatal(err)
			}
		}), nil, []string{"not_a_file"}},
		{"it is a directory", acts(func(t *testing.T, p string) { os.Mkdir(p, 0o700) }), nil, []string{"not_a_file"}},
		{"it is a pipe, and then a file", acts(
			func(t *testing.T, p string) { unix.Mkfifo(p, 0o600) },
			func(t *testing.T, p string) { os.Remove(p); write(t, p, "a\n") },
		), []string{"1:a"}, []string{"not_a_file"}},
		{"its directory is taken away", acts(
			func(t *testing.T, p string) { write(t, p, "a\n") },
			func(t *testing.T, p string) {
				dir := filepath.Dir(p)
				if err := os.Rename(dir, dir+".old"); err != nil {
					t.Fatal(err)
				}
				os.Mkdir(dir, 0o700)
				write(t, p, "another\n")
				write(t, dir+".old/"+filepath.Base(p), "b\n")
			},
		), []string{"1:a", "2:b"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			f := follow(t, filepath.Join(dir, "log"))
			for _, act := range c.acts {
				act(t, f.path)
				if !f.Known(boot()) {
					t.Error("the log is not known up to now")
				}
			}
			a := f.Close()
			if got := slices.Equal(f.lines, c.lines); !got {
				t.Errorf("lines %q, want %q", f.lines, c.lines)
			}
			if got := codes(a); !slices.Equal(got, c.codes) {
				t.Errorf("problems %v, want %v", a.Problems, c.codes)
			}
		})
	}
}

func acts(a ...func(*testing.T, string)) []func(*testing.T, string) { return a }

// TestAPipeHasNoReader: polling a pipe must not unblock its writer.
func TestAPipeHasNoReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f := follow(t, path)
	f.Known(boot())
	if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.ENXIO) {
		unix.Close(fd)
		t.Errorf("opened for writing: %v, want ENXIO: the follower holds it open", err)
	}
}

func TestProblemsNameFileAndLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := follow(t, path)
	write(t, path, "a\nbad\n"+strings.Repeat("bad\n", 100))
	a := f.Close()
	if got, want := a.Problems[0].Error(), path+":2: it is bad"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if len(a.Problems) != 16 || a.More != 85 || a.Bad != 101 || !a.Wrong() {
		t.Errorf("%d problems and %d more, %d bad lines, wrong: %v", len(a.Problems), a.More, a.Bad, a.Wrong())
	}
}

// TestWhatWasThereBefore: lines of an earlier run are skipped without a problem, even if the command cuts or replaces
// them.
func TestWhatWasThereBefore(t *testing.T) {
	old := "bad of another run\nof this one\nbad\n"
	for _, c := range []struct {
		name  string
		then  func(t *testing.T, path string)
		lines []string
		codes []string
	}{
		{"and is appended to", func(t *testing.T, p string) { write(t, p, "new\nbad\n") },
			[]string{"1:bad of another run", "2:of this one", "3:bad", "4:new", "5:bad"},
			[]string{"stale", "bad_line"}},
		{"and is cut first", func(t *testing.T, p string) { os.Truncate(p, 0); write(t, p, "new\n") },
			[]string{"1:bad of another run", "2:of this one", "3:bad", "1:new"}, []string{"stale"}},
		{"and is replaced", func(t *testing.T, p string) { os.Remove(p); write(t, p, "new\n") },
			[]string{"1:bad of another run", "2:of this one", "3:bad", "1:new"}, []string{"stale"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			write(t, path, old)
			f := follow(t, path)
			c.then(t, path)
			a := f.Close()
			if !slices.Equal(f.lines, c.lines) || !slices.Equal(codes(a), c.codes) {
				t.Errorf("lines %q, problems %v; want %q and %v", f.lines, a.Problems, c.lines, c.codes)
			}
			want := "it had 3 lines before the command started, of which 1 are of this run and were imported"
			if a.Problems[0].Message != want {
				t.Errorf("%q, want %q", a.Problems[0].Message, want)
			}
		})
	}
}

func TestNoDirectory(t *testing.T) {
	_, err := agentlog.Follow(agentlog.Options{Path: filepath.Join(t.TempDir(), "no", "log"), Now: boot})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want ErrNotExist", err)
	}
}

// TestArrivals: a line was written between the two times of its arrival, by its writer's clock, and these are close.
func TestArrivals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := follow(t, path)
	var before, after [200]int64
	for i := range before {
		before[i] = boot()
		write(t, path, fmt.Sprintf("%d\n", i))
		after[i] = boot()
		if i%3 == 0 {
			time.Sleep(time.Duration(i) * 20 * time.Microsecond) // any pace
		}
	}
	f.Close()
	if len(f.at) != len(before) {
		t.Fatalf("%d lines, want %d", len(f.at), len(before))
	}
	var widths []int64
	for i, at := range f.at {
		if at.After > after[i] || at.At < before[i] {
			t.Errorf("line %d was written from %d to %d, and is said to come between %d and %d", i, before[i], after[i],
				at.After, at.At)
		}
		widths = append(widths, at.At-at.After)
	}
	slices.Sort(widths)
	t.Logf("arrivals are known within %v (median), %v (worst)", time.Duration(widths[len(widths)/2]),
		time.Duration(widths[len(widths)-1]))
}

// TestKnownWhileItFloods: a log that never pauses cannot block its follower, and Known is only true if everything is
// known.
func TestKnownWhileItFloods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := follow(t, path)
	stop := make(chan struct{})
	var written sync.WaitGroup
	for range 2 {
		written.Go(func() {
			w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()
			for {
				select {
				case <-stop:
					return
				default:
					w.WriteString(strings.Repeat("x", 4000) + "\n")
				}
			}
		})
	}
	for range 50 {
		start := time.Now()
		f.Known(boot())
		if took := time.Since(start); took > time.Minute {
			t.Errorf("Known took %v", took)
		}
	}
	close(stop)
	written.Wait()
	a := f.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if a.Bytes != min(info.Size(), a.Bytes) || len(a.Problems) == 0 && int64(a.Lines)*4001 != info.Size() {
		t.Errorf("%d lines and %d bytes of %d were taken: %v", a.Lines, a.Bytes, info.Size(), a.Problems)
	}
}
