package render

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const recording = `{"version":3,"term":{"cols":100,"rows":30},"timestamp":1}
# a comment
[0.5,"o","a\u001b[3"]
[10,"o","1mb\r\n"]
[0.25,"r","90x20"]
[0.25,"i","typed"]
[1,"x","3"]
[1,"o","torn`

func play(t *testing.T, text string, o Playback) (out, exit string, waited []time.Duration, sizes [][2]int, err error) {
	t.Helper()
	var b strings.Builder
	o.Wait = func(_ context.Context, d time.Duration) error { waited = append(waited, d); return nil }
	o.Size = func(cols, rows int) { sizes = append(sizes, [2]int{cols, rows}) }
	exit, err = Play(t.Context(), &b, strings.NewReader(text), o)
	out, _, _ = strings.Cut(b.String(), restore)
	return out, exit, waited, sizes, err
}

func TestPlay(t *testing.T) {
	ms := func(ms ...int) (all []time.Duration) {
		for _, m := range ms {
			all = append(all, time.Duration(m)*time.Millisecond)
		}
		return all
	}
	for name, c := range map[string]struct {
		o    Playback
		want []time.Duration
	}{
		"as it went":            {Playback{}, ms(500, 10000, 250, 250, 1000)},
		"faster":                {Playback{Speed: 2}, ms(250, 5000, 125, 125, 500)},
		"slower":                {Playback{Speed: 0.5}, ms(1000, 20000, 500, 500, 2000)},
		"pauses are cut":        {Playback{MaxPause: time.Second}, ms(500, 1000, 250, 250, 1000)},
		"pauses cut and faster": {Playback{MaxPause: time.Second, Speed: 4}, ms(125, 250, 62, 62, 250)},
	} {
		out, exit, waited, sizes, err := play(t, recording, c.o)
		if err != nil || out != "a\x1b[31mb\r\n" || exit != "3" {
			t.Errorf("%s: %v, exit %s: %q", name, err, exit, out)
		}
		for i := range waited {
			waited[i] = waited[i].Truncate(time.Millisecond)
		}
		if d := cmp.Diff(c.want, waited); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff([][2]int{{100, 30}, {90, 20}}, sizes); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestWhatIsNoRecording(t *testing.T) {
	for _, text := range []string{"", "x", `{"version":2}`, "[1]"} {
		if _, _, _, _, err := play(t, text, Playback{}); !errors.Is(err, errRecording) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// A hostile one neither hangs nor waits backwards.
	for _, event := range []string{`[-1,"o","x"]`, `["1","o","x"]`, `[1,"o",5]`, `[]`, `{}`} {
		out, _, _, _, err := play(t, "{\"version\":3}\n[1e300,\"o\",\"a\"]\n"+event+"\n[0,\"o\",\"b\"]\n", Playback{})
		if err != nil || out != "a" {
			t.Errorf("%s: %v, %q", event, err, out)
		}
	}
}

// What would do more than draw is left out, however it is cut in pieces.
func TestOnlyWhatDrawsIsPlayed(t *testing.T) {
	for in, want := range map[string]string{
		"text ünïcode 漢\t\r\n\b\a":                "text ünïcode 漢\t\r\n\b\a",
		"\x1b[1;31mred\x1b[0m\x1b[38:2:1:2:3m":    "\x1b[1;31mred\x1b[0m\x1b[38:2:1:2:3m",
		"\x1b[2J\x1b[H\x1b[10;5H\x1b[K\x1b[3A":    "\x1b[2J\x1b[H\x1b[10;5H\x1b[K\x1b[3A",
		"\x1b[?1049h\x1b[?25l\x1b[?25h\x1b7\x1b8": "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b7\x1b8",
		"\x1b(0\x1b(B\x1b[5 q\x1b[1;20r":          "\x1b(0\x1b(B\x1b[5 q\x1b[1;20r",
		"a\x1b]0;title\ab":                        "ab",
		"a\x1b]52;c;cm0gLXJm\x1b\\b":              "ab",
		"a\x1b]8;;http://x\x1b\\link":             "alink",
		"a\x1b[cb\x1b[6n\x1b[>c\x1b[?6n\x1b[0c":   "ab",
		"a\x1b[?1000hb\x1b[?1006;1h\x1b[?2004h":   "ab",
		"a\x1b[21tb\x1b[8;1;1t\x1b[4i":            "ab",
		"a\x1bP$qm\x1b\\b\x1bPpayload\x1b\\":      "ab",
		"a\x1b_apc\x1b\\b\x1b^pm\x1b\\\x1bXs\a":   "ab",
		"a\x1bcb\x1b#8\x1bZ":                      "ab",
		"a\u009b6nb\u009d0;t\u009c":               "a6nb0;t",
		"a\x05b\x00\x7f":                          "ab",
		"a\x1b\x1b[31mb":                          "a\x1b[31mb",
		"a\x1b[3\x1b[31mb":                        "a\x1b[31mb",
		"a\x1b]" + strings.Repeat("x", 3*maxPart): "a]" + strings.Repeat("x", 3*maxPart),
	} {
		for _, size := range []int{1, 3, len(in)} {
			var b strings.Builder
			s := &screen{w: &b}
			for text := in; text != ""; {
				n := min(size, len(text))
				for n < len(text) && text[n]&0xc0 == 0x80 { // a recording has whole characters
					n++
				}
				if err := s.write(text[:n]); err != nil {
					t.Fatal(err)
				}
				text = text[n:]
			}
			if len(in) > maxPart && !strings.Contains(b.String(), "\x1b") {
				continue // where it was given up depends on the pieces
			}
			if d := cmp.Diff(want, b.String()); d != "" {
				t.Errorf("%q in pieces of %d: %s", in, size, d)
			}
		}
	}
}

func FuzzPlay(f *testing.F) {
	f.Add(recording)
	f.Add("{\"version\":3}\n[0,\"o\",\"\\u001b]0;x\\u0007\\u001b[6n\"]\n")
	f.Fuzz(func(t *testing.T, text string) {
		var b strings.Builder
		_, _ = Play(t.Context(), &b, strings.NewReader(text),
			Playback{Wait: func(context.Context, time.Duration) error {
				return nil
			}})
		out := b.String()
		for _, bad := range []string{"\x1b]", "\x1bP", "\x1b_", "\x1b[c", "\x1b[6n", "\u009b"} {
			if strings.Contains(out, bad) {
				t.Errorf("%q drives a terminal", out)
			}
		}
	})
}
