// Package toolschema checks a tool's parameters against the JSON Schema that a client registered for it.
//
// The schema and the parameters are both untrusted, so both are limited. A schema whose alternatives and references
// could make a check take very long is refused when it is compiled. Parameters that are too large for their schema
// are refused when they are checked. Nothing is ever loaded: references point inside the schema. A message names the
// place and the keyword that refused the parameters, and never quotes a value.
package toolschema
