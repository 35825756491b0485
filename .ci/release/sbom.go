package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"path"
	"sort"
	"strings"
	"time"

	"github.com/go-json-experiment/json/v1"
)

// materials is the bill of materials (CycloneDX 1.6): the modules that each program was
// linked from, as the Go linker wrote them into the program.
type materials struct {
	version    string
	when       time.Time
	components []map[string]any
	depends    []map[string]any
	seen       map[string]bool
}

func (m *materials) add(arch string, files []file) error {
	if m.seen == nil {
		m.seen = map[string]bool{}
	}
	for _, f := range files {
		if !strings.HasPrefix(f.path, "bin/") {
			continue
		}
		info, err := buildinfo.Read(bytes.NewReader(f.data))
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		name := path.Base(f.path)
		ref := fmt.Sprintf("%s_linux_%s", name, arch)
		m.components = append(m.components, map[string]any{
			"type": "application", "bom-ref": ref, "name": name, "version": m.version,
			"hashes": []any{map[string]string{"alg": "SHA-256",
				"content": fmt.Sprintf("%x", sha256.Sum256(f.data))}},
			"properties": []any{map[string]string{"name": "arch", "value": arch},
				map[string]string{"name": "go", "value": info.GoVersion}},
		})
		on := []string{m.module("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			on = append(on, m.module(d.Path, d.Version, d.Sum))
		}
		sort.Strings(on)
		m.depends = append(m.depends, map[string]any{"ref": ref, "dependsOn": on})
	}
	return nil
}

// module adds a module once and returns its reference.
func (m *materials) module(name, version, sum string) string {
	ref := "pkg:golang/" + name + "@" + version
	if m.seen[ref] {
		return ref
	}
	m.seen[ref] = true
	c := map[string]any{"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref}
	if sum != "" {
		c["properties"] = []any{map[string]string{"name": "go.sum", "value": sum}}
	}
	m.components = append(m.components, c)
	return ref
}

func (m *materials) document() ([]byte, error) {
	sort.Slice(m.components, func(i, j int) bool {
		return fmt.Sprint(m.components[i]["bom-ref"]) < fmt.Sprint(m.components[j]["bom-ref"])
	})
	data, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{"timestamp": m.when.Format(time.RFC3339),
			"component": map[string]any{"type": "application", "bom-ref": "assay-run", "name": "assay-run",
				"version": m.version}},
		"components":   m.components,
		"dependencies": m.depends,
	}, "", "  ")
	return append(data, '\n'), err
}
