package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/creack/pty"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/recordertest"
)

// tab is a report in a headless Chromium.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	requests int
	problems []string // errors in the console, and requests for anything but the page
}

// browse opens a report about bundles. When the test ends, no request must have
// left and no error be in the console.
func browse(t *testing.T, bundles ...string) *tab {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("needs Debian's chromium: %v", err)
	}
	page := filepath.Join(t.TempDir(), "report.html")
	if code := Main(append([]string{"report", "-o", page}, bundles...), os.Stdin, os.Stdout, os.Stderr); code != 0 {
		t.Fatalf("report exited with %d", code)
	}
	// Where it leaves the socket of its instance, whose path must be short.
	temp, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(browser), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.WindowSize(1400, 1800),
		chromedp.Env("TMPDIR=" + temp),
	}
	allocator, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	tb := &tab{T: t}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(func(ev any) { tb.event(ev, page) }))
	tb.ctx = ctx
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		cancel()
		stop()
		tb.mu.Lock()
		defer tb.mu.Unlock()
		if tb.requests == 0 {
			t.Error("no request was seen: nothing would have been noticed")
		}
		for _, p := range tb.problems {
			t.Error(p)
		}
	})
	tb.run(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
		_, logErr := chromedp.Call(ctx, cdplog.Enable, cdp.Empty{})
		return errors.Join(err, logErr)
	}), chromedp.Navigate("file://"+page))
	tb.is(`document.documentElement.dataset.ready === 'true'`)
	return tb
}

// event notes what must not be: an error, or a request for anything but the page.
func (tb *tab) event(ev any, page string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		tb.problems = append(tb.problems, fmt.Sprintf("exception: %+v", ev.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		tb.problems = append(tb.problems, fmt.Sprintf("console: %s %v", ev.Type, ev.Args))
	case *cdplog.EventEntryAdded:
		tb.problems = append(tb.problems, "log: "+ev.Entry.Text)
	case *network.EventRequestWillBeSent:
		if tb.requests++; ev.Request.URL != "file://"+page {
			tb.problems = append(tb.problems, "request: "+ev.Request.URL)
		}
	}
}

func (tb *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	tb.Helper()
	if err := chromedp.Do(tb.ctx, steps...); err != nil {
		tb.Fatal(err)
	}
}

// value evaluates an expression once.
func value[T any](tb *tab, expression string, opts ...chromedp.EvaluateOption) T {
	tb.Helper()
	v, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](expression, opts...))
	if err != nil {
		tb.Fatalf("%s: %v", expression, err)
	}
	return v
}

// is evaluates an expression until it is true, for as long as a page may take.
func (tb *tab) is(expression string) {
	tb.Helper()
	// The browser computes, and not this process: a loaded machine gives it little time.
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if value[bool](tb, "!!("+expression+")") {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s is not so; the page says:\n%s", expression,
				value[string](tb, `document.body.innerText.slice(0, 3000)`))
		}
	}
}

func (tb *tab) press(keys string) { tb.Helper(); tb.run(chromedp.KeyEvent(keys)) }

// find presses / and types words, and waits until the events are filtered by them.
func (tb *tab) find(words string) {
	tb.Helper()
	tb.press("/")
	tb.is(`document.activeElement.type === 'search'`)
	// DevTools sends the character apart from the key, so it arrives although the page takes the key.
	tb.run(chromedp.Evaluate[chromedp.Void](`document.activeElement.value = ''`))
	tb.press(words)
	tb.is(fmt.Sprintf(`current.view.query === %q`, words))
}

// shoot keeps a picture of the page where ASSAY_TEST_SCREENSHOTS names a folder.
func (tb *tab) shoot(name string) {
	tb.Helper()
	dir := os.Getenv("ASSAY_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(tb.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), png, 0o644)
	}
	if err != nil {
		tb.Error(err)
	}
}

// record makes a bundle of a shell script, on a terminal where one is asked for.
func record(t *testing.T, terminal bool, script string, flags ...string) string {
	t.Helper()
	dir, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "run.tar.gz")
	work := t.TempDir()
	args := append([]string{"-q", "--kernel", "require", "--spool-dir", t.TempDir(), "--workdir", work, "-o", bundle},
		flags...)
	cmd := exec.Command(filepath.Join(dir, "assay-run"), append(args, "--", "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), "ASSAY_TEST_PROGRAM="+filepath.Join(dir, "assay-run"))
	var out []byte
	if !terminal {
		out, err = cmd.CombinedOutput()
	} else {
		f, perr := pty.StartWithSize(cmd, &pty.Winsize{Cols: 60, Rows: 12})
		if perr != nil {
			t.Fatal(perr)
		}
		out = readAll(f)
		f.Close()
		err = cmd.Wait()
	}
	if err != nil && strings.Contains(string(out), "kernel observation is not supported") {
		t.Skipf("no kernel layer can be recorded here: %s", out)
	}
	if _, serr := os.Stat(bundle); serr != nil { // the script may fail
		t.Fatalf("%v\n%s", err, out)
	}
	return bundle
}

func readAll(f *os.File) []byte {
	var all []byte
	buf := make([]byte, 4096)
	for {
		n, err := f.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil { // EIO at the end of a terminal
			return all
		}
	}
}

func TestReportRendersFiltersAndFinds(t *testing.T) {
	layertest.Host(t)
	tb := browse(t, record(t, false, `echo hello > made; for i in 1 2 3; do cat made; done; cat nothing; true`))
	tb.is(`document.querySelector('h1').textContent.startsWith('sh -c ')`)
	tb.is(`document.body.innerText.includes('Every program that the run executed is listed.')`)
	tb.is(`document.querySelectorAll('.events .row').length > 5`)
	tb.is(`document.querySelector('.tree').textContent.includes('cat made')`)
	tb.is(`[...document.querySelectorAll('pre')].some((p) => p.textContent.includes('hello'))`)

	// The canvas is painted, in more than one colour.
	// A copy, since the browser warns of a canvas that is read more than once.
	tb.is(`(() => { const c = document.querySelector('canvas'), o = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true}), s = new Set(); o.drawImage(c, 0, 0); const d = o.getImageData(0, 0, c.width, c.height).data; for (let i = 0; i < d.length; i += 4) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size > 5; })()`)

	// Find by keyboard alone: /, the words, Enter for the first, n for the next.
	tb.find("made bin/cat openat")
	tb.is(`current.view.rows.length === 3`)
	tb.press(kb.Enter)
	tb.is(`document.querySelector('.detail').textContent.includes('/made')`)
	tb.is(`document.querySelectorAll('.events .row[aria-selected="true"]').length === 1`)
	tb.press(kb.Escape)
	tb.is(`current.view.rows.length === current.view.n && document.activeElement.getAttribute('role') === 'grid'`)
	tb.press("n")
	first := value[string](tb, `document.querySelector('.detail').innerText`)
	tb.press("n")
	second := value[string](tb, `document.querySelector('.detail').innerText`)
	if first == second {
		t.Errorf("n stays at %q", first)
	}

	// Filter by group and by process, move and zoom in time.
	tb.press("1")
	tb.is(`[...current.view.rows].every((i) => page.runs[0].events.group[i] !== 0) && current.view.rows.length < current.view.n`)
	tb.press("1")
	tb.press("t")
	tb.press(kb.ArrowDown)
	tb.press(kb.ArrowDown)
	tb.is(`current.view.proc >= 0 && [...current.view.rows].every((i) => page.runs[0].events.proc[i] === current.view.proc)`)
	tb.press("+")
	tb.is(`current.view.to - current.view.from < current.view.end * 0.6`)
	tb.press("0")
	tb.is(`current.view.from === 0 && current.view.to === current.view.end`)
	tb.press(kb.Escape)
	tb.press("?")
	tb.is(`document.querySelector('dialog').open`)
	tb.press(kb.Escape)
	tb.shoot("run.png")
}

func TestReportShowsHostileNamesAsText(t *testing.T) {
	layertest.Host(t)
	tb := browse(t, record(t, false, `
: > '<script>window.pwned=1;<'
: > '<img src=x onerror=window.pwned=1>'
: > "$(printf 'turned\342\200\256gpj.exe')"
: > "$(printf 'red\033[31mred')"
: > "$(printf 'c1\302\2333m')"
: > "$(printf 'bytes\377\376')"
mkdir -p '<'; : > '<'/'script><script>window.pwned=1<'
echo '<b>bold</b> </pre><script>window.pwned=1</script>'
`))
	tb.is(`document.querySelectorAll('.events .row').length > 5`)
	tb.is(`window.pwned === undefined && document.scripts.length === 2 && !document.querySelector('.row img, pre b')`)
	tb.is(`document.querySelector('pre').textContent.includes('<b>bold</b> </pre><script>')`)
	for _, want := range []string{`<script>window.pwned=1;<`, `<img src=x onerror=window.pwned=1>`,
		`turned\u202egpj.exe`, `red\x1b[31mred`, `c1\u009b3m`, `bytes\xff\xfe`} {
		tb.is(fmt.Sprintf(`page.runs[0].strings.some((s) => s.includes(%q))`, want))
	}
	tb.find("onerror")
	tb.is(`document.querySelector('.events .row').textContent.includes('<img src=x onerror=window.pwned=1>')`)
	tb.is(`!/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/.test(document.body.textContent.replaceAll('\n', ''))`)
}

func TestReportPlaysTheTerminal(t *testing.T) {
	layertest.Host(t)
	tb := browse(t, record(t, true,
		`printf '\033[1;32mgreen\033[0m one\r\n'; sleep 0.4; printf 'two \342\200\256turned\r\n'; sleep 0.4; printf '\033[2J\033[Hthree'`))
	tb.is(`document.querySelector('.screen').textContent.includes('three') && !document.querySelector('.screen').textContent.includes('two')`)
	tb.is(`current.cast.length > 700`)
	tb.run(chromedp.Evaluate[chromedp.Void](`current.cast.seek(current.cast.cast.times.at(-1) - 1)`))
	tb.is(`document.querySelector('.screen').textContent.includes('two turned') && !document.querySelector('.screen').textContent.includes('three')`)
	tb.is(`getComputedStyle([...document.querySelectorAll('.screen span')].find((s) => s.textContent === 'green')).fontWeight === '700'`)
	tb.press(" ")
	tb.is(`current.cast.button.textContent === 'Pause' || current.cast.ms >= current.cast.length`)
	tb.is(`document.querySelector('.screen').textContent.includes('three') && current.cast.button.textContent === 'Play'`)
	tb.is(`Math.abs(current.view.now / 1000 - current.cast.length) < 1`)
	tb.shoot("terminal.png")
}

func TestReportComparesTwoAndListsMany(t *testing.T) {
	layertest.Host(t)
	a, b := record(t, false, `echo a > a`), record(t, false, `cat /etc/hostname; exit 3`)
	tb := browse(t, a, b)
	tb.is(`document.querySelectorAll('tbody tr').length === 2 && document.querySelectorAll('nav button').length === 4`)
	tb.run(chromedp.Click(`nav button:nth-child(2)`))
	tb.is(`document.querySelector('.diff').textContent.includes('The runs differ.')`)
	tb.is(`[...document.querySelectorAll('.diff li.added')].some((l) => l.textContent.includes('/cat'))`)
	tb.shoot("diff.png")
	tb.run(chromedp.Click(`nav button:nth-child(4)`))
	tb.is(`document.querySelector('h1').textContent.includes('exit 3')`)
	tb.run(chromedp.Click(`nav button:nth-child(1)`), chromedp.Click(`th:nth-child(2) button`))
	tb.is(`document.querySelector('th:nth-child(2)').getAttribute('aria-sort') === 'ascending' && document.querySelector('tbody tr').textContent.includes('exited 0')`)
}

// TestReportOfManyEventsStaysSmall looks at a run of 130,000 events: the page
// holds 100,000, says so, and draws only what is on screen. How long a frame of
// the lanes takes is logged.
func TestReportOfManyEventsStaysSmall(t *testing.T) {
	layertest.Host(t)
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("needs python3")
	}
	script := python + ` -c '
import os
for i in range(130000):
    try: os.open("/tmp/none/%d" % i, 0)
    except OSError: pass
os.system("exit 3")'`
	tb := browse(t, record(t, false, script, "--kernel-buffer", "64MiB"))
	tb.is(`document.body.innerText.includes('This page shows ') && page.runs[0].shown > 50000 && page.runs[0].shown <= 100000`)
	tb.is(`document.querySelectorAll('*').length < 2000`)
	tb.is(`(() => { const T = page.runs[0].events.t; let gap = 0; for (let i = 1; i < T.length; i++) if (T[i] < T[i - 1]) gap++; return gap === 0; })()`)
	tb.press("e")
	tb.press(kb.End)
	tb.is(`document.querySelector('.events .row:last-child').getAttribute('aria-rowindex') === String(current.view.rows.length)`)
	frames := value[[]float64](tb,
		`(async () => { const took = []; for (let i = 0; i < 40; i++) { current.view.window(i * current.view.end / 80, i * current.view.end / 80 + current.view.end / 2); await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))); took.push(current.lanes.took); } return took.sort((a, b) => a - b); })()`, chromedp.EvalAwaitPromise)
	t.Logf("a frame of the lanes over half of the events: median %.1f ms, slowest %.1f ms", frames[len(frames)/2],
		frames[len(frames)-1])
	filter := value[float64](tb,
		`(() => { const t = performance.now(); current.view.query = 'openat none/77'; current.view.filter(); return performance.now() - t; })()`)
	t.Logf("a search through all: %.1f ms", filter)
	tb.is(`current.view.rows.length > 100 && current.view.rows.length < 20000`)
	tb.is(`[...current.view.rows].every((i) => page.runs[0].strings[page.runs[0].events.value[i]].startsWith('/tmp/none/77'))`)
}

// TestNothingScrollsSideways looks at reports of one run and of three, on a phone and on a
// screen, light and dark.
func TestNothingScrollsSideways(t *testing.T) {
	layertest.Host(t)
	bundle := record(t, false, "echo hello > made # "+strings.Repeat("word --option=value ", 40))
	for name, bundles := range map[string][]string{"one": {bundle}, "three": {bundle, bundle, bundle}} {
		tb := browse(t, bundles...)
		for _, width := range []int64{390, 1400} {
			for _, scheme := range []string{"light", "dark"} {
				tb.run(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
					_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride,
						emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 1800, DeviceScaleFactor: 1})
					_, mediaErr := chromedp.Call(ctx, emulation.SetEmulatedMedia,
						emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
							{Name: "prefers-color-scheme", Value: scheme},
						}})
					return errors.Join(err, mediaErr)
				}))
				tb.is(fmt.Sprintf(`innerWidth === %d`, width))
				tb.shoot(fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
				if got := value[string](tb,
					`JSON.stringify([...document.querySelectorAll('html, .wide, .grid')].map((e) => [e.tagName + '.' + e.className, e.scrollWidth - e.clientWidth]).filter(([, n]) => n > 0))`); got != "[]" {
					t.Errorf("%s at %d px: scrolls sideways: %s", name, width, got)
				}
				if lines := value[float64](tb,
					`Math.max(0, ...[...document.querySelectorAll('h1.mono, td.command > span')].map((e) => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight)))`); lines > 2 {
					t.Errorf("%s at %d px: a command takes %.1f lines", name, width, lines)
				}
			}
		}
	}
}
