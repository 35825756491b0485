package render

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/v1"
)

//go:embed web
var web embed.FS

// scripts are the front end's files in the order in which they need each other.
var scripts = []string{"dom.js", "data.js", "list.js", "lanes.js", "events.js", "tree.js", "cast.js", "words.js",
	"runs.js", "diff.js", "main.js"}

// emulator is the terminal emulator, which only a recording needs.
const emulator = "vendor/xterm-headless.js"

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

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func escapeText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
