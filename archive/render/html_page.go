package render

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// maxPageEvents limits the kernel events of a report, all runs together. If there are more, it has a sample; see
// sampler.
const maxPageEvents = 100_000

// Limits of each run in a report.
const (
	maxProcesses = 20_000
	maxCalls     = 5_000   // with turns
	maxText      = 4_000   // bytes of one text
	maxRecording = 8 << 20 // bytes of a terminal recording
)

// page is the data of a report.
type page struct {
	Generator string      `json:"generator"`
	Runs      []*run      `json:"runs"`
	Diff      *judge.Diff `json:"diff"`
}

// columns are the events, with a list for each field. Kind, Proc, Call and Value are indexes in lists of run (-1:
// none).
type columns struct {
	T      []int64  `json:"t"` // microseconds since the run's start
	Kind   []int    `json:"kind"`
	Proc   []int    `json:"proc"`
	Call   []int    `json:"call"`
	Value  []int    `json:"value"`  // in run.Strings
	Result []int    `json:"result"` // resultUnknown, ...
	Group  []int    `json:"group"`  // groupProcess, ...
	Count  []uint64 `json:"count"`  // occurrences that the event stands for
	Seq    []uint64 `json:"seq"`
	PID    []uint32 `json:"pid"`
}

// finding is the verdict of an evaluation rule that does not pass.
type finding struct {
	Rule  string   `json:"rule"`
	State string   `json:"state"`
	Texts []string `json:"texts"`
}

type proc struct {
	PID     uint32 `json:"pid"`
	Parent  int    `json:"parent"`
	Exe     string `json:"exe"`
	Command string `json:"command"`
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"` // -1: its end was not recorded
	Exit    int    `json:"exit"`   // -1: none
	Signal  string `json:"signal"`
	Execs   int    `json:"execs"`
}

// call is a tool call or a turn.
type call struct {
	ID       string   `json:"id"`
	Tool     string   `json:"tool"`
	Decision string   `json:"decision"`
	Failed   bool     `json:"failed"` // by the agent's own report
	Method   string   `json:"method"`
	Events   uint64   `json:"events"`
	StartNS  int64    `json:"start_ns"` // -1: not known
	EndNS    int64    `json:"end_ns"`   // -1: not known
	Turn     int      `json:"turn"`     // -1: not a turn
	Params   string   `json:"params"`
	Answer   string   `json:"answer"`
	Verdict  string   `json:"verdict"`
	Model    string   `json:"model"` // the request in which a model proposed it
	Written  []string `json:"written"`
	Hosts    []string `json:"hosts"`
	Commands []string `json:"commands"`
	Beyond   string   `json:"beyond"` // code for what it did beyond its claim
	Unseen   string   `json:"unseen"` // code for why nothing was observed
}

type mark struct {
	TNS  int64  `json:"t_ns"`
	Text string `json:"text"`
}

// cast is a terminal recording.
type cast struct {
	Cols   int      `json:"cols"`
	Rows   int      `json:"rows"`
	Times  []int64  `json:"times"` // of Texts, in milliseconds
	Texts  []string `json:"texts"`
	Resize [][3]int `json:"resize"` // new sizes: index in Texts of the text that follows, columns, rows
	Cut    bool     `json:"cut"`
}

type pageText struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Size int64  `json:"size"`
	Cut  bool   `json:"cut"`
}

// WriteHTML writes a report about the bundles to w. If there are two, it also compares them. Stage is called before
// bundle i of n is read; it may be nil.
func WriteHTML(ctx context.Context, w io.Writer, generator string, bundles []*view.Bundle,
	stage func(i, n int, name string)) error {
	p := &page{Generator: generator}
	for i, b := range bundles {
		if stage != nil {
			stage(i, len(bundles), b.Name)
		}
		r, err := readRun(ctx, b, maxPageEvents/len(bundles))
		if err != nil {
			return err
		}
		p.Runs = append(p.Runs, r)
	}
	if len(bundles) == 2 {
		d, err := judge.Compare(ctx, bundles[0], bundles[1])
		if err != nil {
			return err
		}
		p.Diff = cleanDiff(d)
	}
	return p.write(w)
}

func (p *page) needsEmulator() bool {
	for _, r := range p.Runs {
		if r.Cast != nil {
			return true
		}
	}
	return false
}

// maxDiffValues limits the values of each set of a difference.
const maxDiffValues = 500

// cleanDiff makes a difference safe to show.
func cleanDiff(d *judge.Diff) *judge.Diff {
	c := *d
	c.Capability = nil
	c.Sections = nil
	for _, s := range d.Sections {
		s.Added, s.Removed, s.Unchanged = cleanAll(s.Added, maxDiffValues), cleanAll(s.Removed, maxDiffValues),
			[]string{}
		s.BaseGaps, s.HeadGaps = cleanAll(s.BaseGaps, maxDiffValues), cleanAll(s.HeadGaps, maxDiffValues)
		c.Sections = append(c.Sections, s)
	}
	c.Verdict, c.Observed = cleanChanges(d.Verdict), cleanChanges(d.Observed)
	c.Base.Name, c.Head.Name = cleanText(d.Base.Name), cleanText(d.Head.Name)
	c.Base.Command, c.Head.Command = nil, nil
	return &c
}

func cleanChanges(list []judge.Change) []judge.Change {
	out := []judge.Change{}
	for _, c := range list {
		out = append(out, judge.Change{What: c.What, Base: cleanText(c.Base), Head: cleanText(c.Head)})
	}
	return out
}

func cleanAll(list []string, most int) []string {
	out := []string{}
	for i, s := range list {
		if i == most {
			break
		}
		out = append(out, cleanText(s))
	}
	return out
}

// cleanText makes a text from evidence safe to show, and shortens it to maxText.
func cleanText(s string) string {
	if len(s) > maxText {
		return schema.OneLine(s[:maxText]) + "…"
	}
	return schema.OneLine(s)
}

// write writes the page.
func (p *page) write(w io.Writer) error {
	style, err := web.ReadFile("web/style.css")
	if err != nil {
		return err
	}
	code, err := p.code()
	if err != nil {
		return err
	}
	title := "assay-run report"
	if len(p.Runs) == 1 {
		title += ": " + p.Runs[0].RunID
	}
	if _, err := fmt.Fprintf(w, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '%s'; style-src '%s'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>%s</title>
<style>%s</style>
</head>
<body>
<noscript>This report needs JavaScript. Nothing is loaded: all of it is in this file.</noscript>
<main id="app"></main>
<script type="application/json" id="data">`, digest(code), digest(style), escapeText(title), style); err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(true) // so that no "<" can end the script element
	if err := e.Encode(p); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "</script>\n<script>%s</script>\n</body>\n</html>\n", code)
	return err
}

// code returns the front end as one script.
func (p *page) code() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("'use strict';\n")
	if p.needsEmulator() {
		lib, err := web.ReadFile("web/" + emulator)
		if err != nil {
			return nil, err
		}
		if i := bytes.LastIndex(lib, []byte("//# sourceMappingURL=")); i >= 0 {
			lib = lib[:i]
		}
		b.WriteString("const emulator = (() => { const module = {exports: {}}; const exports = module.exports;\n")
		b.Write(lib)
		b.WriteString("\nreturn exports; })();\n")
	} else {
		b.WriteString("const emulator = null;\n")
	}
	for _, name := range scripts {
		src, err := web.ReadFile("web/" + name)
		if err != nil {
			return nil, err
		}
		b.Write(src)
	}
	return b.Bytes(), nil
}
