package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smallSurface = `{"schema":"assay.runner.capability_surface.v0","run_id":"r_1","filesystem_paths":["/a","/b"],"network_endpoints":[],"process_execs":["/x"],"mcp_tools":[],"policy_decisions":[]}`

func TestReadSurfaceGivesWhatTheDocumentHolds(t *testing.T) {
	got := CapabilitySurface{Schema: CapabilitySurfaceV0, NetworkEndpoints: []string{}, MCPTools: []string{},
		PolicyDecisions: []string{}}
	var err error
	got.RunID, err = ReadSurface(strings.NewReader(smallSurface), func(list, value string) {
		switch list {
		case "filesystem_paths":
			got.FilesystemPaths = append(got.FilesystemPaths, value)
		case "process_execs":
			got.ProcessExecs = append(got.ProcessExecs, value)
		default:
			t.Errorf("%s has %q", list, value)
		}
	})
	var want CapabilitySurface
	if err := json.Unmarshal([]byte(smallSurface), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestReadSurfaceNamesTheFault(t *testing.T) {
	for doc, want := range map[string]error{
		"": ErrSyntax, "[": ErrSyntax, `["a","a"`: ErrSyntax, `{"run_id":7,"a":1,"a":2}`: ErrDuplicateKey,
		"{}{}": ErrSyntax, "{": ErrSyntax, smallSurface + "1": ErrSyntax, "[]": ErrSchema, "7": ErrSchema,
		"{}": ErrSchema,
		strings.Replace(smallSurface, `"/a"`, `"\xff"`, 1):                    ErrSyntax,
		strings.Replace(smallSurface, `}`, `,"more":1e999999}`, 1):            ErrSyntax,
		strings.Replace(smallSurface, `}`, `,"mcp_tools":[]}`, 1):             ErrDuplicateKey,
		strings.Replace(smallSurface, `}`, `,"more":{"a":1,"a":2}}`, 1):       ErrDuplicateKey,
		strings.Replace(smallSurface, `"mcp_tools":[]`, `"mcp_tools":{}`, 1):  ErrSchema,
		strings.Replace(smallSurface, `"mcp_tools":[]`, `"mcp_tools":[1]`, 1): ErrSchema,
		strings.Replace(smallSurface, `"mcp_tools":[]`, `"tools":[]`, 1):      ErrSchema,
		strings.Replace(smallSurface, `"r_1"`, `""`, 1):                       ErrSchema,
		strings.Replace(smallSurface, `}`, `,"more":[{"a":1e3}]}`, 1):         nil,
	} {
		if _, err := ReadSurface(strings.NewReader(doc), nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", doc, err, want)
		}
	}
	var unsorted *UnsortedError
	_, err := ReadSurface(strings.NewReader(strings.Replace(smallSurface, `"/b"`, `"/a","/0"`, 1)), nil)
	if !errors.As(err, &unsorted) || unsorted.List != "filesystem_paths" || unsorted.Index != 1 {
		t.Errorf("%v", err)
	}
}

// FuzzReadSurface holds the reader against the JSON Schema.
func FuzzReadSurface(f *testing.F) {
	other := otherValidator(f, CapabilitySurfaceV0)
	for _, s := range []string{smallSurface, strings.Replace(smallSurface, `"/b"`, `"/a"`, 1),
		strings.Replace(smallSurface, `"/a"`, `null`, 1), "{}", "[1]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		_, err := ReadSurface(bytes.NewReader(doc), nil)
		var unsorted *UnsortedError
		syntaxErr := checkSyntax(doc)
		if errors.Is(syntaxErr, ErrSyntax) != errors.Is(err, ErrSyntax) ||
			errors.Is(syntaxErr, ErrDuplicateKey) != errors.Is(err, ErrDuplicateKey) {
			t.Errorf("%q: %v, and its syntax %v", doc, err, syntaxErr)
		}
		if schemaErr := other(doc); (err == nil) != (schemaErr == nil) && !errors.As(err, &unsorted) {
			t.Errorf("%q: ours %v, the schema %v", doc, err, schemaErr)
		}
	})
}
