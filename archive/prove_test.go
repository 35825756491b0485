package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

func TestEveryLineCanBeProved(t *testing.T) {
	sealed := sealSample(t, "a.tar.gz", 13)
	for layer, lines := range map[string]uint64{"kernel": 13, "lifecycle": 2, "policy": 1} {
		for seq := range lines {
			p, err := prove(sealed.Path, layer, seq)
			if err != nil {
				t.Fatal(err)
			}
			doc, err := schema.Document(p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := CheckProof(bytes.NewReader(doc))
			if err != nil || got.Identity != sealed.Identity || !strings.Contains(got.Line, `"seq":`) {
				t.Errorf("line %d of %s: %v", seq, layer, err)
			}
		}
		if _, err := prove(sealed.Path, layer, lines); !errors.Is(err, ErrProof) {
			t.Errorf("line %d of %s: %v", lines, layer, err)
		}
	}
	for _, c := range []struct{ path, layer string }{
		{sealed.Path, "nothing"}, {sealed.Path, "sdk"}, {"testdata/vectors/before-integrity/sample.tar.gz", "kernel"},
		{hostileDir + "/integrity-of-another-line.tar.gz", "kernel"},
	} {
		if _, err := prove(c.path, c.layer, 0); !errors.Is(err, ErrProof) {
			t.Errorf("%s of %s: %v", c.layer, c.path, err)
		}
	}
}

func TestAFalseProofIsRefused(t *testing.T) {
	sealed := sealSample(t, "a.tar.gz", 13)
	good, err := prove(sealed.Path, "kernel", 5)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(p *schema.InclusionProof){
		"another line": func(p *schema.InclusionProof) {
			p.Line = strings.Replace(p.Line, `"pid":4000`, `"pid":4001`, 1)
		},
		"another place": func(p *schema.InclusionProof) {
			p.Seq = 6
			p.Line = strings.Replace(p.Line, `"seq":5`, `"seq":6`, 1)
		},
		"a seq that is not the line's": func(p *schema.InclusionProof) { p.Seq = 6 },
		"another layer":                func(p *schema.InclusionProof) { p.Layer = "policy" },
		"no such layer":                func(p *schema.InclusionProof) { p.Layer = "x" },
		"a path too short":             func(p *schema.InclusionProof) { p.Path = p.Path[1:] },
		"a path too long":              func(p *schema.InclusionProof) { p.Path = append(p.Path, p.Path[0]) },
		"a path turned around":         func(p *schema.InclusionProof) { p.Path[0], p.Path[1] = p.Path[1], p.Path[0] },
		"another tree size": func(p *schema.InclusionProof) {
			p.Integrity = strings.Replace(p.Integrity, `"lines": 13`, `"lines": 14`, 1)
		},
		"another bundle's identity": func(p *schema.InclusionProof) {
			p.Identity = "sha256:" + strings.Repeat("0", 64)
		},
		"another manifest": func(p *schema.InclusionProof) { p.Manifest += " " },
		"another schema":   func(p *schema.InclusionProof) { p.Schema = "x" },
	} {
		p := *good
		p.Path = append([]string{}, good.Path...)
		spoil(&p)
		doc, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := CheckProof(bytes.NewReader(doc)); !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, doc := range []string{"", "{", "[]", "{}", "null"} {
		if _, err := CheckProof(strings.NewReader(doc)); !errors.Is(err, ErrProof) {
			t.Errorf("%q: %v", doc, err)
		}
	}
}

func prove(path, layer string, seq uint64) (*schema.InclusionProof, error) {
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	return r.Prove(context.Background(), layer, seq)
}
