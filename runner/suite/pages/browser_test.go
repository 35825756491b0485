package pages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/chromedp/chromedp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/schema"
)

// large is a suite of agents with 10 attempts at each of many tasks. Every kind of attempt is among them.
func large(tasks int, agents ...string) *schema.SuiteResults {
	random := rand.New(rand.NewPCG(1, 1))
	r := &schema.SuiteResults{Schema: schema.SuiteResultsV0, Suite: "large", Flaky: []string{},
		Hosts: []schema.SuiteHost{{Worker: "w", AssayRun: "1", Kernel: "6.12"}}}
	for _, agent := range agents {
		g := schema.SuiteAgent{Agent: agent, Tasks: tasks, Counted: tasks}
		var all []figures.Cell
		for task := range tasks {
			c := schema.SuiteCell{Task: fmt.Sprintf("fix-the-failing-test-of-project-%03d", task), Agent: agent}
			rate := random.Float64()
			for n := range 10 {
				a := schema.SuiteAttempt{ID: fmt.Sprintf("%s/%s/%d", c.Task, agent, n+1), Task: c.Task, Agent: agent,
					Attempt: n + 1, Verdict: new(schema.SuitePassed)}
				a.Bundle = fmt.Sprintf("attempts/%s/%s/%d/try-1/run.tar.gz", c.Task, agent, n+1)
				if random.Float64() > rate {
					a.Verdict, a.Reason = new(schema.SuiteFailed), "check tests failed: "+strings.Repeat("long ", 200)
				}
				switch random.IntN(20) {
				case 0:
					a.Verdict, a.Reason = new(schema.SuiteInfrastructure), "worker_lost"
				case 1:
					a.Verdict, a.Reason = new(schema.SuiteInconclusive), "the kernel layer is partial"
				case 2, 3:
					a.Suspicions = []schema.Finding{{Rule: "reads_hidden", Text: "opened /oracle/solution"}}
				case 4:
					a.Verdict = nil
				}
				c.Add(&a)
				r.Attempts = append(r.Attempts, a)
			}
			cells := []figures.Cell{figures.Counted(&c)}
			all = append(all, cells...)
			c.Rate = figures.Rate(cells)
			g.Passed, g.Failed = g.Passed+c.Passed, g.Failed+c.Failed
			g.Infrastructure += c.Infrastructure
			r.Cells = append(r.Cells, c)
		}
		g.Rate = figures.Rate(all)
		r.Agents = append(r.Agents, g)
	}
	return r
}

// tab is the page in a headless Chromium.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // messages of the browser, and requests for anything but the page
}

// browse opens the page of results.
func browse(t *testing.T, r *schema.SuiteResults) *tab {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("needs Debian's chromium: %v", err)
	}
	page := filepath.Join(t.TempDir(), "index.html")
	f, err := os.Create(page)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(HTML(f, r, "test", ReportOf), f.Close()); err != nil {
		t.Fatal(err)
	}
	temp, err := os.MkdirTemp("", "c") // for its socket, whose path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	allocator, stop := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(browser), chromedp.Headless,
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.WindowSize(1200, 900), chromedp.Env("TMPDIR="+temp))
	tb := &tab{T: t}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(func(ev any) {
		tb.mu.Lock()
		defer tb.mu.Unlock()
		switch ev := ev.(type) {
		case *cdplog.EventEntryAdded:
			tb.problems = append(tb.problems, "log: "+ev.Entry.Text)
		case *network.EventRequestWillBeSent:
			if ev.Request.URL != "file://"+page {
				tb.problems = append(tb.problems, "request: "+ev.Request.URL)
			}
		}
	}))
	tb.ctx = ctx
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		cancel()
		stop()
		tb.mu.Lock()
		defer tb.mu.Unlock()
		for _, p := range tb.problems {
			t.Error(p)
		}
	})
	tb.run(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
		_, logErr := chromedp.Call(ctx, cdplog.Enable, cdp.Empty{})
		return errors.Join(err, logErr)
	}), chromedp.Navigate("file://"+page))
	return tb
}

func (tb *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	tb.Helper()
	if err := chromedp.Do(tb.ctx, steps...); err != nil {
		tb.Fatal(err)
	}
}

func value[T any](tb *tab, expression string) T {
	tb.Helper()
	v, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		tb.Fatalf("%s: %v", expression, err)
	}
	return v
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

// TestThePageOfALargeSuite writes 250 tasks with 10 attempts by each of two agents, and looks at the page in a browser.
func TestThePageOfALargeSuite(t *testing.T) {
	layertest.Host(t)
	var page strings.Builder
	began := time.Now()
	if err := HTML(&page, large(250, "one"), "test", ReportOf); err != nil {
		t.Fatal(err)
	}
	t.Logf("2,500 attempts: %d kB in %v", page.Len()>>10, time.Since(began).Round(time.Millisecond))
	if page.Len() > 2<<20 {
		t.Errorf("the page has %d bytes, want at most 2 MiB", page.Len())
	}
	tb := browse(t, large(25, "one", "another"))
	if n := value[int](tb, `document.querySelectorAll('.grid .m').length`); n != 500 {
		t.Errorf("%d attempts are drawn, want 500", n)
	}
	// The dot of each rate is where the text beside it says, inside its interval.
	at := value[[][]float64](tb, `[...document.querySelectorAll('.plot')].map(p => {
		const box = q => p.querySelector(q).getBoundingClientRect(), axis = box('svg');
		const part = x => 100 * (x - axis.left) / axis.width, dot = box('.dot'), these = box('.these'), like = box('.like');
		return [parseFloat(p.lastElementChild.textContent), part(dot.left + dot.width / 2), part(these.left),
			part(these.right), part(like.left), part(like.right)];
	})`)
	if len(at) != 6 {
		t.Errorf("%d rates are drawn, want three of each agent", len(at))
	}
	for _, p := range at {
		said, dot := p[0], p[1]
		if said-dot > 0.3 || dot-said > 0.3 || p[2] >= dot || dot >= p[3] || p[4] >= p[2] || p[3] >= p[5] {
			t.Errorf("said and drawn are %.1f", p)
		}
	}
	// Each kind of attempt has another symbol, and all but passed ones another colour than these.
	kinds := value[[][]string](tb, `[...new Map([...document.querySelectorAll('.grid .m')].map(m =>
		[[...m.querySelectorAll('use')].map(u => u.getAttribute('href')).join(''), getComputedStyle(m).color]))]`)
	colours := map[string]string{}
	for _, k := range kinds {
		colours[k[0]] = k[1]
	}
	for _, symbol := range []string{"#suspect", "#failed", "#failed#warned", "#inconclusive", "#infrastructure",
		"#pending"} {
		if colours[symbol] == "" || colours[symbol] == colours["#passed"] {
			t.Errorf("the colours of the symbols are %v", colours)
		}
	}
	tb.shoot("suite.png")
	// On a phone nothing is cut off, also in the dark.
	tb.run(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride,
			emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 800, DeviceScaleFactor: 1})
		_, dark := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
		return errors.Join(err, dark)
	}))
	if width := value[int](tb, `document.documentElement.scrollWidth`); width > 390 {
		t.Errorf("on a phone the page is %d pixels wide", width)
	}
	if cut := value[[]string](tb, `[...document.querySelectorAll('.grid .m, .plot svg, .plot p')].filter(e =>
		e.getBoundingClientRect().right > 390 || e.getBoundingClientRect().width === 0).map(e => e.outerHTML)`); len(cut) > 0 {
		t.Errorf("on a phone these are cut off: %.300q", cut)
	}
	if back := value[string](tb, `getComputedStyle(document.body).backgroundColor`); back != "rgb(22, 24, 29)" {
		t.Errorf("in the dark the page is %s", back)
	}
	tb.shoot("suite-phone.png")
}
