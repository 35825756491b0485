package render

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/view"
)

// maxPageEvents is how many kernel events a report holds in all. Of more it holds
// every denial, execution and connection it has room for, and a sample of the
// rest.
const maxPageEvents = 100_000

// maxProcesses, maxCalls and maxText bound the rest of each run: processes,
// calls and turns, and bytes of one text.
const (
	maxProcesses = 20_000
	maxCalls     = 5_000
	maxText      = 4_000
	maxRecording = 8 << 20
)

// page is everything that a report holds.
type page struct {
	Generator string      `json:"generator"`
	Runs      []*run      `json:"runs"`
	Diff      *judge.Diff `json:"diff"`
}

// columns are the events, a list for each field. T is microseconds since the
// run's start; Kind, Proc and Call are indexes (-1: none), Value is one of
// Strings; Result is 0 unknown, 1 ok, 2 failed, 3 denied; Group see groups;
// Count is how many occurrences it stands for.
type columns struct {
	T      []int64  `json:"t"`
	Kind   []int    `json:"kind"`
	Proc   []int    `json:"proc"`
	Call   []int    `json:"call"`
	Value  []int    `json:"value"`
	Result []int    `json:"result"`
	Group  []int    `json:"group"`
	Count  []uint64 `json:"count"`
	Seq    []uint64 `json:"seq"`
	PID    []uint32 `json:"pid"`
}

// finding is what a rule about an agent under evaluation says, where it does not pass.
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
	EndNS   int64  `json:"end_ns"` // -1: it was not seen ending
	Exit    int    `json:"exit"`   // -1: none
	Signal  string `json:"signal"`
	Execs   int    `json:"execs"`
}

// call is a tool call or a turn.
type call struct {
	ID       string   `json:"id"`
	Tool     string   `json:"tool"`
	Decision string   `json:"decision"`
	Method   string   `json:"method"`
	Events   uint64   `json:"events"`
	StartNS  int64    `json:"start_ns"` // -1: not known
	EndNS    int64    `json:"end_ns"`   // -1: not known
	Turn     int      `json:"turn"`     // -1: not a turn
	Params   string   `json:"params"`
	Answer   string   `json:"answer"`
	Verdict  string   `json:"verdict"`
	Model    string   `json:"model"` // which proposed it
	Written  []string `json:"written"`
	Hosts    []string `json:"hosts"`
	Commands []string `json:"commands"`
	Beyond   string   `json:"beyond"` // why it is more than it claimed
	Unseen   string   `json:"unseen"` // why nothing was observed of it
}

type mark struct {
	TNS  int64  `json:"t_ns"`
	Text string `json:"text"`
}

// cast is a terminal recording: pairs of seconds and output.
type cast struct {
	Cols   int      `json:"cols"`
	Rows   int      `json:"rows"`
	Times  []int64  `json:"times"` // milliseconds
	Texts  []string `json:"texts"`
	Resize [][3]int `json:"resize"` // index of Texts before which it became cols, rows
	Cut    bool     `json:"cut"`
}

type pageText struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Size int64  `json:"size"`
	Cut  bool   `json:"cut"`
}

// WriteHTML writes a report about the bundles to w. With two it also tells what
// differs. Stage is called before each bundle; nil for nobody.
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

// maxDiffValues is how much of each set of a difference is shown.
const maxDiffValues = 500

// cleanDiff makes a difference fit to be shown.
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

// cleanText makes a text from evidence fit to be shown, and short enough.
func cleanText(s string) string {
	if len(s) > maxText {
		return view.Clean(s[:maxText]) + "…"
	}
	return view.Clean(s)
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
	e.SetEscapeHTML(true) // no "<" in it can end the element
	if err := e.Encode(p); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "</script>\n<script>%s</script>\n</body>\n</html>\n", code)
	return err
}

// code is the front end, as one script.
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
