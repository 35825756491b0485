package toolschema

import (
	"bytes"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// FuzzSchema checks that no accepted schema makes a check take too long or panic.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`), []byte(`{"a":"x"}`))
	f.Add([]byte(`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"r":{"$ref":"#/$defs/t"}}}}}`), []byte(`{"l":{"l":{"r":{}}}}`))
	f.Add([]byte(`{"allOf":[{"if":{"type":"string"},"then":{"minLength":2},"else":false}],"unevaluatedProperties":false}`), []byte(`"xx"`))
	f.Add([]byte(`{"prefixItems":[true,{"const":1.0}],"items":{"enum":[null]},"uniqueItems":true,"contains":{"multipleOf":0.1}}`), []byte(`[1,1,null]`))
	f.Add([]byte(`{"patternProperties":{"^a":{"not":{}}},"propertyNames":{"maxLength":3},"dependentSchemas":{"b":{"minProperties":2}}}`), []byte(`{"b":1}`))
	f.Fuzz(func(t *testing.T, raw, params []byte) {
		if jsonrpc.CheckMessage(raw) != nil || jsonrpc.CheckMessage(params) != nil || !jsontext.Value(raw).IsValid() ||
			!jsontext.Value(params).IsValid() {
			return
		}
		began := leaktest.Computed()
		p, err := Compile(bytes.TrimSpace(raw))
		if err == nil && p != nil {
			p.Check(params)
		}
		if took := leaktest.Computed() - began; took > 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
