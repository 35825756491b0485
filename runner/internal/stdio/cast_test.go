package stdio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type closer struct{ bytes.Buffer }

func (*closer) Close() error { return nil }

func newCast(limit int64) (*cast, *closer) {
	var file closer
	c := &cast{cap: capture{stream: Terminal, cfg: &Config{
		CaptureBytes: limit,
		Create:       func(string) (io.WriteCloser, error) { return &file, nil },
	}}}
	return c, &file
}

// played is a cast as a player sees it.
type played struct {
	Cols, Rows int
	Output     string
	Resizes    []string
	Exit       string
	Times      []float64
}

// play reads a cast as the specification has it, and as strictly.
func play(data []byte) (played, error) {
	var p played
	if !bytes.HasSuffix(data, []byte("\n")) {
		return p, fmt.Errorf("torn last line")
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	var head struct {
		Version   int
		Term      struct{ Cols, Rows int }
		Timestamp int64
	}
	if err := json.Unmarshal([]byte(lines[0]), &head); err != nil || head.Version != 3 || head.Timestamp == 0 {
		return p, fmt.Errorf("header %s: %v", lines[0], err)
	}
	p.Cols, p.Rows = head.Term.Cols, head.Term.Rows
	now := 0.0
	for i, line := range lines[1:] {
		var ev []any
		if err := json.Unmarshal([]byte(line), &ev); err != nil || len(ev) != 3 {
			return p, fmt.Errorf("line %d: %s: %v", i+2, line, err)
		}
		d, ok := ev[0].(float64)
		data, ok2 := ev[2].(string)
		if !ok || !ok2 || d < 0 || p.Exit != "" {
			return p, fmt.Errorf("line %d: %s", i+2, line)
		}
		now += d
		p.Times = append(p.Times, now)
		switch ev[1] {
		case "o":
			p.Output += data
		case "r":
			p.Resizes = append(p.Resizes, data)
		case "x":
			p.Exit = data
		default:
			return p, fmt.Errorf("line %d: %s", i+2, line)
		}
	}
	return p, nil
}

func TestCastJoinsCharactersAndAddsUp(t *testing.T) {
	const text = "é€😀 \x1b[1m\"\\\x00 <&>\u2028"
	for size := 1; size <= len(text); size++ {
		c, file := newCast(1 << 20)
		start := time.Unix(1000, 0)
		c.begin(80, 24, "xterm", start)
		now := start
		for i := 0; i < len(text); i += size {
			now = now.Add(1234567 * time.Nanosecond)
			c.output([]byte(text[i:min(i+size, len(text))]), now)
		}
		c.resize(80, 24, now)
		c.resize(100, 30, now)
		c.setExit(3)
		st := c.finish(now)
		p, err := play(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if p.Output != text || p.Exit != "3" || p.Cols != 80 || !cmp.Equal(p.Resizes, []string{"100x30"}) {
			t.Errorf("chunks of %d: %+v", size, p)
		}
		if total := p.Times[len(p.Times)-1]; total-now.Sub(start).Seconds() > 2e-6 ||
			now.Sub(start).Seconds()-total > 2e-6 {
			t.Errorf("intervals add up to %v, not %v", total, now.Sub(start))
		}
		if st.Bytes != int64(len(text)) || st.Captured != st.Bytes || st.Truncated {
			t.Errorf("%+v", st)
		}
	}
}

func TestCastEscapesWhatIsNoUTF8(t *testing.T) {
	c, file := newCast(1 << 20)
	c.begin(80, 24, "", time.Now())
	c.output([]byte("a\xffb\xc3"), time.Now())
	c.output([]byte("(\xe2\x82"), time.Now())
	c.finish(time.Now())
	p, err := play(file.Bytes())
	if want := `a\xffb\xc3(\xe2\x82`; err != nil || p.Output != want {
		t.Errorf("%q, want %q, %v", p.Output, want, err)
	}
}

func TestCastCap(t *testing.T) {
	for limit := int64(0); limit < 400; limit++ {
		c, file := newCast(limit)
		c.begin(80, 24, "xterm", time.Now())
		for range 20 {
			c.output([]byte("0123456789"), time.Now())
		}
		c.setExit(0)
		st := c.finish(time.Now())
		if int64(file.Len()) > limit || !st.Truncated || st.Bytes != 200 {
			t.Fatalf("cap %d: %d bytes, %+v", limit, file.Len(), st)
		}
		if file.Len() == 0 {
			continue
		}
		p, err := play(file.Bytes())
		if err != nil || int64(len(p.Output)) != st.Captured || p.Exit != "0" {
			t.Fatalf("cap %d: %v %+v\n%s", limit, err, p, file.String())
		}
	}
	c, file := newCast(0)
	c.begin(80, 24, "xterm", time.Now())
	c.setExit(0)
	if st := c.finish(time.Now()); st.Truncated || file.Len() != 0 {
		t.Errorf("no output under a cap of zero: %+v %q", st, file.String())
	}
}
