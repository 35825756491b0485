package main

import (
	"bytes"
	"os"
	"testing"
)

// What is committed was made from the table as it is.
func TestGeneratedFilesAreOfThisTable(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("%s is out of date: run go generate ./schema", path)
		}
	}
}
