package contract

import (
	"reflect"

	"github.com/goccy/go-yaml"

	"github.com/assay-run/assay-run/schema"
)

// Encode writes c as a file that [Parse] reads back as c.
func Encode(c *Contract, format Format) ([]byte, error) {
	asJSON, err := schema.Document(c)
	if err != nil || format == JSON {
		return asJSON, err
	}
	asYAML, err := yaml.JSONToYAML(asJSON)
	if err != nil {
		return asJSON, nil
	}
	// The YAML library does not quote everything that needs it. JSON is valid YAML.
	if again, err := Parse(asYAML, YAML); err != nil || !reflect.DeepEqual(again, c) {
		return asJSON, nil
	}
	return asYAML, nil
}
