// Command columns names the lines of the files given that are longer than 120 columns, a
// tab being four. Text in backquotes is left as it is, and so are compiler directives.
package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"log"
	"os"
	"strings"
	"unicode/utf8"
)

const limit, tab = 120, 4

func main() {
	log.SetFlags(0)
	long := false
	for _, name := range os.Args[1:] {
		src, err := os.ReadFile(name)
		if err != nil {
			log.Fatal(err)
		}
		var quoted map[int]bool
		if strings.HasSuffix(name, ".go") {
			quoted = rawLines(src)
		}
		for i, line := range bytes.Split(src, []byte("\n")) {
			if width(line) > limit && !quoted[i+1] && !bytes.HasPrefix(line, []byte("//go:")) {
				fmt.Printf("%s:%d: %d columns, at most %d\n", name, i+1, width(line), limit)
				long = true
			}
		}
	}
	if long {
		os.Exit(1)
	}
}

// rawLines are the lines, from 1, that text in backquotes is on.
func rawLines(src []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok != token.STRING || text[0] != '`' {
			continue
		}
		for first, n := file.Line(pos), strings.Count(text, "\n"); n >= 0; n-- {
			lines[first+n] = true
		}
	}
}

func width(line []byte) int {
	return utf8.RuneCount(line) + (tab-1)*bytes.Count(line, []byte("\t"))
}
