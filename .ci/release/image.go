package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/v1"
)

// image is a container image that holds assay-run and assay-review and nothing else: assay-suite
// needs a shell. The tar is an OCI layout, and docker load can read it too.
func image(version, arch string, files []file, when time.Time) []byte {
	var programs []file
	for _, f := range files {
		switch {
		case f.path == "LICENSE":
			f.path = "licenses/LICENSE"
			programs = append(programs, f)
		case strings.HasPrefix(f.path, "bin/") && f.path != "bin/assay-suite":
			programs = append(programs, f)
		}
	}
	var layer bytes.Buffer
	writeTar(&layer, "", append(programs, file{"tmp/.keep", 0o644, nil}), when)
	layerDigest := hexDigest(layer.Bytes())
	created := when.Format(time.RFC3339)
	config := encode(map[string]any{
		"architecture": arch, "os": "linux", "created": created,
		"config": map[string]any{
			"Entrypoint": []string{"/bin/assay-run"}, "Env": []string{"PATH=/bin"}, "WorkingDir": "/",
			"Labels": map[string]string{"org.opencontainers.image.title": "assay-run",
				"org.opencontainers.image.version": version, "org.opencontainers.image.created": created},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerDigest}},
		"history": []any{map[string]any{"created": created, "created_by": "make release"}},
	})
	blob := func(data []byte, mediaType string) map[string]any {
		return map[string]any{"mediaType": mediaType, "digest": "sha256:" + hexDigest(data), "size": len(data)}
	}
	manifest := encode(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": blob(config, "application/vnd.oci.image.config.v1+json"),
		"layers": []any{blob(layer.Bytes(), "application/vnd.oci.image.layer.v1.tar")},
	})
	reference := blob(manifest, "application/vnd.oci.image.manifest.v1+json")
	reference["platform"] = map[string]string{"architecture": arch, "os": "linux"}
	reference["annotations"] = map[string]string{"org.opencontainers.image.ref.name": version,
		"io.containerd.image.name": "assay-run:" + tag(version)}
	path := func(data []byte) string { return "blobs/sha256/" + hexDigest(data) }
	var out bytes.Buffer
	writeTar(&out, "", []file{
		{"oci-layout", 0o644, encode(map[string]string{"imageLayoutVersion": "1.0.0"})},
		{"index.json", 0o644, encode(map[string]any{"schemaVersion": 2,
			"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []any{reference}})},
		{"manifest.json", 0o644,
			encode([]any{map[string]any{"Config": path(config), "RepoTags": []string{"assay-run:" + tag(version)},
				"Layers": []string{path(layer.Bytes())}}})},
		{path(config), 0o644, config}, {path(manifest), 0o644, manifest}, {path(layer.Bytes()), 0o644, layer.Bytes()},
	}, when)
	return out.Bytes()
}

func hexDigest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// tag is a version as the tag of an image.
func tag(version string) string { return strings.ReplaceAll(version, "+", "-") }

// encode writes JSON with the keys of maps sorted.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	must(err)
	return data
}
