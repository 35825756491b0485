package contract

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/contractfile"
)

// maxAnswerBytes limits a model's answer.
const maxAnswerBytes = 1 << 20

// answerDepth limits how deep objects in an answer are nested that are examined. A contract is nested three deep and
// may be wrapped. The limit also keeps the search linear: no byte is read more often than this.
const answerDepth = 8

// errNoObject means that an answer has no JSON object.
var errNoObject = errors.New("the answer contains no complete JSON object; answer with the contract as one JSON object")

// extract finds a contract in a model's answer: the first complete JSON object that is valid, whatever prose, fences
// or other objects surround it. If none is valid, the error is that of the nearest object: the first with a "checks"
// key, otherwise the first. ignored are its keys that a contract does not have.
func extract(answer string) (_ *contractfile.Contract, ignored []string, _ error) {
	if len(answer) > maxAnswerBytes {
		return nil, nil, errors.New("the answer is larger than 1 MiB; answer with the contract alone")
	}
	var first, nearest error
	for start := 0; ; start++ {
		at := strings.IndexByte(answer[start:], '{')
		if at < 0 {
			break
		}
		start += at
		end := objectEnd(answer[start:])
		if end < 0 {
			continue
		}
		object := answer[start : start+end]
		hasChecks := strings.Contains(object, `"checks"`)
		c, err := contractfile.Parse([]byte(object), config.JSON)
		if err == nil && hasChecks {
			return c, nil, nil
		}
		if err != nil && hasChecks { // it may be a contract with extra keys; otherwise the error names them
			if known, ignored := prune(object); len(ignored) > 0 {
				if c, err := contractfile.Parse(known, config.JSON); err == nil && len(c.Validate()) == 0 {
					return c, ignored, nil
				}
			}
		}
		if err == nil { // such as {}
			err = errors.New(`the JSON object has no "checks"`)
		}
		if first == nil {
			first = err
		}
		if nearest == nil && hasChecks {
			nearest = err
		}
	}
	switch {
	case nearest != nil:
		return nil, nil, nearest
	case first != nil:
		return nil, nil, first
	}
	return nil, nil, errNoObject
}

// prune removes keys that a contract does not have. An object that is not a contract, or has a duplicate key, stays
// unchanged, so that Parse refuses it.
func prune(object string) (known []byte, ignored []string) {
	var contract map[string]jsontext.Value
	if json.Unmarshal([]byte(object), &contract) != nil {
		return []byte(object), nil
	}
	drop := func(m map[string]jsontext.Value, where string, keys ...string) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !slices.Contains(keys, k) {
				ignored = append(ignored, where+k)
				delete(m, k)
			}
		}
	}
	drop(contract, "", "description", "checks", "protected", "tests")
	var checks []map[string]jsontext.Value
	if json.Unmarshal(contract["checks"], &checks) == nil && checks != nil {
		for i, check := range checks {
			drop(check, fmt.Sprintf("checks[%d].", i), "name", "command", "expect_exit_zero", "output_contains",
				"timeout_secs")
		}
		if data, err := json.Marshal(checks); err == nil {
			contract["checks"] = data
		}
	}
	known, err := json.Marshal(contract, json.Deterministic(true))
	if err != nil || len(ignored) == 0 {
		return []byte(object), nil
	}
	return known, ignored
}

// objectEnd returns the length of the JSON object at the start of s, from its brackets and strings alone; -1 if it
// has no end.
func objectEnd(s string) int {
	var open [answerDepth]byte
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			n := stringEnd(s[i:])
			if n < 0 {
				return -1
			}
			i += n - 1
		case '{', '[':
			if depth == answerDepth {
				return -1
			}
			open[depth] = c
			depth++
		case '}', ']':
			if open[depth-1] != c-2 { // '{'+2 is '}', '['+2 is ']'
				return -1
			}
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// stringEnd returns the length of the JSON string at the start of s, or -1.
func stringEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}
