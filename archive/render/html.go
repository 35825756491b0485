package render

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"strings"
)

//go:embed web
var web embed.FS

// scripts are the front end's files in the order of their dependencies.
var scripts = []string{"dom.js", "data.js", "list.js", "lanes.js", "events.js", "tree.js", "cast.js", "words.js",
	"runs.js", "diff.js", "main.js"}

// emulator is the terminal emulator. Only a report with a terminal recording needs it.
const emulator = "vendor/xterm-headless.js"

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func escapeText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
