// Package toolschema checks a tool's parameters against the JSON Schema that a
// client registered for it.
//
// The schema and the parameters both come from strangers, so both are bounded:
// a schema whose alternatives and references could make a check run away is
// refused when it is compiled, and parameters that are too large for their
// schema are refused when they are checked. Nothing is ever loaded: references
// point inside the schema. A message says where and which keyword refused the
// parameters, and never quotes a value.
package toolschema
