package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

type item struct {
	Name string  `json:"name"`
	Flag *bool   `json:"flag"`
	Text *string `json:"text"`
	Secs *int64  `json:"secs"`
}

type list struct {
	Title string   `json:"title"`
	Items []item   `json:"items"`
	Globs []string `json:"globs"`
}

func TestBothFormatsGiveTheSameValue(t *testing.T) {
	yes, text, secs := true, "a\nb\n", int64(7)
	want := list{Title: "t: #1", Items: []item{{Name: "one", Flag: &yes, Text: &text, Secs: &secs}, {Name: "two"}},
		Globs: []string{"a/**"}}
	for format, data := range map[Format]string{
		JSON: `{"title":"t: #1","items":[{"name":"one","flag":true,"text":"a\nb\n","secs":7},{"name":"two","text":null}],"globs":["a/**"]}`,
		YAML: "# a comment\ntitle: 't: #1'\nitems:\n- name: one\n  flag: true\n  text: |\n    a\n    b\n  secs: " +
			"7\n- {name: \"two\", text: null}\nglobs:\n  - a/**\n",
	} {
		var got list
		if err := Decode([]byte(data), format, &got); err != nil {
			t.Fatalf("format %d: %v", format, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("format %d (-want +got):\n%s", format, d)
		}
	}
}

func TestAByteOrderMarkIsSkipped(t *testing.T) {
	for data, format := range map[string]Format{"\ufefftitle: a\n": YAML, "\ufeff{\"title\": \"a\"}": JSON} {
		var got list
		if err := Decode([]byte(data), FormatOf("file", []byte(data)), &got); err != nil || got.Title != "a" {
			t.Errorf("format %v: %v, %+v", format, err, got)
		}
		if FormatOf("file", []byte(data)) != format {
			t.Errorf("%q is taken for the other format", data)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		format Format
		data   string
		line   int
		key    string
		says   string
	}{
		"an unknown key, listing the known ones": {JSON, "{\"title\":\"\",\n\"items\":[{\"nmae\":\"x\"}]}", 2,
			"items[0].nmae", "allowed are name, flag, text, secs"},
		"a key in the wrong case":       {JSON, `{"Title":""}`, 1, "Title", "unknown key"},
		"a key given twice":             {JSON, "{\"title\":\"a\",\n\n\"title\":\"b\"}", 3, "title", "twice"},
		"a number for a string":         {JSON, `{"title":5}`, 1, "title", "found a number, want a string"},
		"a string for a number":         {JSON, `{"items":[{"secs":"5"}]}`, 1, "items[0].secs", "want a whole number"},
		"a fraction for a whole number": {JSON, `{"items":[{"secs":1.5}]}`, 1, "items[0].secs", "want a whole number"},
		"a number beyond 64 bits": {JSON, `{"items":[{"secs":99999999999999999999}]}`, 1, "items[0].secs",
			"want a whole number"},
		"an object for a list":    {JSON, `{"items":{}}`, 1, "items", "want a list"},
		"text after the value":    {JSON, "{}\nx", 2, "", "not valid JSON"},
		"a torn file":             {JSON, `{"title":"a`, 1, "title", "not valid JSON"},
		"nothing":                 {JSON, ``, 1, "", "not valid JSON"},
		"invalid UTF-8":           {JSON, "{\"title\":\"\xff\"}", 1, "", "not valid UTF-8"},
		"nesting that never ends": {JSON, strings.Repeat(`{"items":[`, 60000), 1, "", ""},

		"yaml: an unknown key": {YAML, "title: a\nitems:\n- name: x\n  nmae: y\n", 4, "items[0].nmae",
			"allowed are name"},
		"yaml: a key given twice": {YAML,
			"title: a\nglobs: []\ntitle: b\n", 3, "title", "the first is on line 1"},
		"yaml: a key given twice in quotes": {YAML, "title: a\n\"title\": b\n", 2, "title", "the first is on line 1"},
		"yaml: a number for a string":       {YAML, "title: 5\n", 1, "title", "want a string (quote it)"},
		"yaml: yes for true":                {YAML, "items:\n- flag: yes\n", 2, "items[0].flag", "want true or false"},
		"yaml: a quoted number": {YAML, "items:\n- secs: '5'\n", 2, "items[0].secs",
			"want a whole number"},
		"yaml: a fraction": {YAML, "items:\n- secs: 1.5\n", 2, "items[0].secs",
			"want a whole number"},
		"yaml: not a number":              {YAML, "items:\n- secs: .nan\n", 2, "items[0].secs", "not allowed"},
		"yaml: a second document":         {YAML, "title: a\n---\ntitle: b\n", 3, "", "second YAML document"},
		"yaml: an empty file":             {YAML, "# nothing\n", 0, "", "empty"},
		"yaml: an anchor":                 {YAML, "title: &a x\n", 1, "title", "anchor"},
		"yaml: an alias":                  {YAML, "title: *a\n", 1, "", "alias"},
		"yaml: a merge key":               {YAML, "items:\n- <<: {name: a}\n", 2, "items[0]", "merge key"},
		"yaml: a tag":                     {YAML, "title: !!binary aGk=\n", 1, "title", "tag"},
		"yaml: a complex key":             {YAML, "? [title]\n: a\n", 1, "", "plain string"},
		"yaml: a number as key":           {YAML, "1: a\n", 1, "", "plain string"},
		"yaml: a list at the top":         {YAML, "- a\n", 1, "", "want an object"},
		"yaml: a scalar at the top":       {YAML, "hello\n", 1, "", "want an object"},
		"yaml: invalid UTF-8":             {YAML, "title: a\nglobs: [\"\xff\"]\n", 2, "", "UTF-8"},
		"yaml: a tab as indentation":      {YAML, "items:\n\t- name: x\n", 2, "", "a tab in the indentation"},
		"yaml: a tab after a value":       {YAML, "title: a\n\tglobs: []\n", 2, "", "a tab in the indentation"},
		"yaml: a key between two levels":  {YAML, "items:\n  - name: a\n title: b\n", 3, "", "indentation"},
		"yaml: a key that is too deep":    {YAML, "title: a\n  globs: []\n", 2, "", "indented too far"},
		"yaml: a colon in text":           {YAML, "title: a: b\n", 1, "", "quote text"},
		"yaml: a list that is not closed": {YAML, "globs: [a\n", 2, "", "write ]"},
		"a similar key":                   {JSON, `{"itmes":[]}`, 1, "itmes", "did you mean \"items\"; allowed"},
		"a repeated key in a repeated one": {JSON,
			"{\"items\":[],\n\"items\":[{\"name\":1,\"name\":1}]}", 2, "items", "the first is on line 1"},
		"yaml: an unclosed quote":            {YAML, "title: \"a\n", 1, "", "not valid YAML"},
		"yaml: flow nesting that never ends": {YAML, "title: " + strings.Repeat("[", 100000), 1, "", "too deep"},
		"yaml: flow objects without end":     {YAML, "title: " + strings.Repeat("{a: ", 60000), 1, "", "too deep"},
		"yaml: block nesting on one line":    {YAML, strings.Repeat("- ", 100000), 1, "", "too deep"},
	} {
		t.Run(name, func(t *testing.T) {
			var into list
			begin := leaktest.Computed()
			err := Decode([]byte(c.data), c.format, &into)
			if took := leaktest.Computed() - begin; took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			e, ok := err.(*Error)
			if !ok {
				t.Fatalf("error is %T %v, want *Error", err, err)
			}
			if !strings.Contains(e.Error(), c.says) {
				t.Errorf("error %q does not say %q", e, c.says)
			}
			if c.line != e.Line || (c.key != e.Key && !strings.Contains(name, "never ends")) {
				t.Errorf("error is at line %d key %q, want line %d key %q", e.Line, e.Key, c.line, c.key)
			}
		})
	}
}

// keys are size bytes of keys that differ.
func keys(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}
	return b.String()
}

// A file of the maximum size must not take quadratic time, however it is filled.
func TestLargeYAMLIsDecodedInTime(t *testing.T) {
	const size = 256 << 10
	deep := func(step string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(strings.Repeat(" ", i) + step + "\n")
		}
		return b.String()
	}
	for name, data := range map[string]string{
		"one long plain text":    "title: " + strings.Repeat("word ", size/5),
		"one long quoted text":   "title: \"" + strings.Repeat("\\n", size/2) + "\"",
		"a block text of lines":  "title: |\n" + strings.Repeat("  x\n", size/4),
		"many short items":       "globs:\n" + strings.Repeat("- a\n", size/4),
		"many flow items":        "globs: [" + strings.Repeat("a, ", size/3) + "]",
		"a repeated key":         strings.Repeat("k: v\n", size/5),
		"many unknown keys":      keys(size),
		"ever deeper keys":       deep("a:"),
		"ever deeper lists":      deep("-"),
		"nothing but newlines":   strings.Repeat("\n", size),
		"nothing but colons":     strings.Repeat(": ", size/2),
		"nothing but quotes":     strings.Repeat("\"", size),
		"nothing but apostrophe": strings.Repeat("'", size),
		"nothing but comments":   strings.Repeat("#\n", size/2),
		"documents":              strings.Repeat("---\n", size/4),
		"closing brackets":       strings.Repeat("]", size),
		"pipes":                  strings.Repeat("a: |\n", size/5),
	} {
		t.Run(name, func(t *testing.T) {
			var into list
			begin := leaktest.Computed()
			err := Decode([]byte(data), YAML, &into)
			took := leaktest.Computed() - begin
			t.Logf("%v, error %.80v", took, err)
			if took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
