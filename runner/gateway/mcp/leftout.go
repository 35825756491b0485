package mcp

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// maxPart is how much the run's gateway gets of the beginning, and of the end, of a
// result that is too large for a message. In bytes.
const maxPart = 8 << 10

// leftOut stands for a result that is too large. It has the result's beginning and end.
func leftOut(result []byte) []byte {
	part := func(b []byte) []byte {
		text, _ := json.Marshal(strings.ToValidUTF8(string(b), "\ufffd"))
		return text
	}
	head, tail := result[:min(len(result), maxPart)], result[max(0, len(result)-maxPart):]
	var says struct {
		IsError bool `json:"isError"`
		errorCode
		Data errorCode `json:"data"`
	}
	_ = json.Unmarshal(result, &says)
	data, _ := json.Marshal(says.Data.or(says.errorCode))
	return fmt.Appendf(nil, schema.ResultLeftOut+`"bytes":%d,"isError":%t,"data":%s,"head":%s,"tail":%s}`, len(result), says.IsError, data, part(head), part(tail))
}

// errorCode has an error's own code, and whether the call may be retried.
type errorCode struct {
	Code      jsontext.Value `json:"code,omitzero"`
	Retryable jsontext.Value `json:"retryable,omitzero"`
}

// or returns e, with o's values where e has no usable ones.
func (e errorCode) or(o errorCode) errorCode {
	useful := func(v, w jsontext.Value) jsontext.Value {
		for _, v := range []jsontext.Value{v, w} {
			if v != nil && len(v) <= 256 {
				return v
			}
		}
		return nil
	}
	return errorCode{useful(e.Code, o.Code), useful(e.Retryable, o.Retryable)}
}
