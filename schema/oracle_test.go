package schema

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"testing"

	oracle "github.com/santhosh-tekuri/jsonschema/v6"
)

// otherValidator checks with a second implementation of JSON Schema, which also
// holds the schemas against the 2020-12 metaschema.
func otherValidator(t testing.TB, id string) func(doc []byte) error {
	src, err := JSONSchema(id)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := oracle.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		t.Fatal(err)
	}
	c := oracle.NewCompiler()
	if err := c.AddResource("assay:///"+id, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("assay:///" + id)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return func(doc []byte) error {
		if err := checkSyntax(doc); err != nil {
			return err
		}
		v, err := oracle.UnmarshalJSON(bytes.NewReader(doc))
		if err != nil {
			return err
		}
		return s.Validate(plainIntegers(v))
	}
}

// plainIntegers makes a half of each number that is whole and not written as
// SPEC.md has integers.
func plainIntegers(v any) any {
	switch v := v.(type) {
	case json.Number:
		_, signed := strconv.ParseInt(v.String(), 10, 64)
		_, unsigned := strconv.ParseUint(v.String(), 10, 64)
		if r, ok := new(big.Rat).SetString(v.String()); ok && r.IsInt() &&
			(v == "-0" || signed != nil && unsigned != nil) {
			return json.Number(map[bool]string{false: "0.5", true: "-0.5"}[r.Sign() < 0])
		}
	case []any:
		for i := range v {
			v[i] = plainIntegers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainIntegers(v[k])
		}
	}
	return v
}

// FuzzTwoValidatorsAgree holds our validator against another one.
func FuzzTwoValidatorsAgree(f *testing.F) {
	ids := schemaIDs()
	var others []func([]byte) error
	for _, id := range ids {
		others = append(others, otherValidator(f, id))
	}
	for _, line := range lineSeeds() {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		for i, id := range ids {
			ours, theirs := Validate(id, doc), others[i](doc)
			if (ours == nil) != (theirs == nil) {
				t.Errorf("%s: %q: ours %v, theirs %v", id, doc, ours, theirs)
			}
		}
	})
}
