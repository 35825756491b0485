package contractfile

import (
	"go.yaml.in/yaml/v4"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// Encode writes c as a file that [Parse] reads back as c.
func Encode(c *Contract, format config.Format) ([]byte, error) {
	asJSON, err := schema.Document(c)
	if err != nil || format == config.JSON {
		return asJSON, err
	}
	// JSON is YAML: only the style of its values changes.
	var doc yaml.Node
	if err := yaml.Load(asJSON, &doc); err != nil {
		return nil, err
	}
	plain(&doc)
	return yaml.Dump(&doc, yaml.WithIndent(2))
}

// plain lets the encoder choose how the values below n are written.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
}
