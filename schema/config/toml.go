package config

import (
	"bytes"
	"errors"

	"github.com/BurntSushi/toml"
)

// Limits of what is read as TOML. The parser's time and memory grow with the square of the depth of a value and of the
// parts of a key, and a deep value ends the program.
const (
	maxTables    = 2000   // inline
	maxBrackets  = 20_000 // of arrays and of the names of tables
	maxDots      = 300    // in a line
	maxTOMLBytes = 1 << 20
)

var errTOML = errors.New("it is too long or too deep")

// TOML reads text into v as toml.Decode does. It refuses what could take a minute or gigabytes.
func TOML(text []byte, v any) (toml.MetaData, error) {
	deep := len(text) > maxTOMLBytes || bytes.Count(text, []byte("{")) > maxTables ||
		bytes.Count(text, []byte("[")) > maxBrackets
	for line := range bytes.Lines(text) {
		deep = deep || bytes.Count(line, []byte(".")) > maxDots
	}
	if deep {
		return toml.MetaData{}, errTOML
	}
	return toml.Decode(string(text), v)
}
