package toolschema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxWork limits how many subschemas may apply to one place of the parameters, counting all combinations of
	// alternatives and references. Otherwise a dozen lines of schema can ask for more steps than there are atoms.
	maxWork = 10_000
	// maxVisits limits the work of computing that.
	maxVisits = 200_000
	// maxUnroll is how deep a schema that refers to itself is followed. No message is nested deeper.
	maxUnroll = 64
)

var (
	errCircle = errors.New("a $ref leads back to itself")
	errWork   = errors.New("the schema would take too long to check")
)

// workload computes what a schema may cost.
type workload struct {
	root   map[string]any
	visits int
	sames  map[string]bool // pointers that do not lead back to the same place
	downs  map[string]int  // by depth and pointer
}

// boundWork returns the largest number of subschemas that apply to one place of the parameters. It refuses a schema
// with too many, and references that leave the document or lead back to themselves at the same place.
func boundWork(root map[string]any) (int, error) {
	w := &workload{root: root, sames: map[string]bool{}, downs: map[string]int{}}
	if err := screen(root, 0); err != nil {
		return 0, err
	}
	return w.down(root, "", 0)
}

// screen refuses keywords that change the meaning of references.
func screen(v any, depth int) error {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			_, text := e.(string)
			switch {
			case k == "$dynamicRef", k == "$dynamicAnchor", k == "$recursiveRef", k == "$recursiveAnchor",
				k == "$vocabulary":
				return fmt.Errorf("%s is not supported", k)
			case k == "$id" && text && depth > 0:
				return errors.New("$id is supported at the top only")
			case k == "$ref" && text && e != "#" && !strings.HasPrefix(e.(string), "#/"):
				return fmt.Errorf("$ref %.100q: only references within the schema (#/...) are supported", e)
			}
			if err := screen(e, depth+1); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := screen(e, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// reach says where a subschema applies: to the same place, to all places below it, or to one place below it that its
// siblings under the same keyword do not apply to.
type reach int

const (
	here reach = iota
	below
	apart
)

var keywords = sync.OnceValue(func() map[string]reach {
	return map[string]reach{
		"not": here, "if": here, "then": here, "else": here, "allOf": here, "anyOf": here, "oneOf": here,
		"dependentSchemas": here, "dependencies": here,
		"additionalItems": below, "contains": below, "additionalProperties": below, "propertyNames": below,
		"unevaluatedItems": below, "unevaluatedProperties": below, "patternProperties": below,
		"properties": apart, "prefixItems": apart, "items": apart,
	}
})

// single are the keywords whose object is one schema, not a map of schemas.
var single = map[string]bool{
	"not": true, "if": true, "then": true, "else": true, "additionalItems": true, "contains": true,
	"additionalProperties": true,
	"propertyNames":        true, "unevaluatedItems": true, "unevaluatedProperties": true, "items": true,
}

// each calls f for every subschema of s, which is at pointer p.
func (w *workload) each(s map[string]any, p string, f func(sub any, at, keyword string, r reach) error) error {
	if w.visits++; w.visits > maxVisits {
		return errWork
	}
	if ref, ok := s["$ref"].(string); ok {
		target, at, err := w.target(ref)
		if err == nil {
			err = f(target, at, "$ref", here)
		}
		if err != nil {
			return err
		}
	}
	for k, v := range s {
		r, applies := keywords()[k]
		if !applies {
			continue
		}
		var err error
		switch v := v.(type) {
		case map[string]any:
			if single[k] {
				err = f(v, p+"/"+k, k, r)
				break
			}
			for name, sub := range v {
				if err = f(sub, p+"/"+k+"/"+escapePointer(name), k, r); err != nil {
					break
				}
			}
		case []any:
			for i, sub := range v {
				if err = f(sub, p+"/"+k+"/"+strconv.Itoa(i), k, r); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkType refuses an unknown type, which is probably a typing error.
func checkType(v any) error {
	switch v := v.(type) {
	case string:
		switch v {
		case "object", "array", "string", "number", "integer", "boolean", "null":
			return nil
		}
		return fmt.Errorf("type %.40q is not a JSON Schema type", v)
	case []any:
		for _, e := range v {
			if err := checkType(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// same follows the subschemas that apply to the same place, and refuses a circle.
func (w *workload) same(v any, p string) error {
	s, ok := v.(map[string]any)
	done, known := w.sames[p]
	switch {
	case !ok || done:
		return nil
	case known:
		return errCircle
	}
	w.sames[p] = false // in progress
	err := w.each(s, p, func(sub any, at, _ string, r reach) error {
		if r != here {
			return nil
		}
		return w.same(sub, at)
	})
	w.sames[p] = true
	return err
}

// down returns the largest number of subschemas that apply to one place at or below v's.
func (w *workload) down(v any, p string, depth int) (int, error) {
	s, ok := v.(map[string]any)
	if !ok || depth > maxUnroll {
		return 1, nil
	}
	key := strconv.Itoa(depth) + p
	if n, known := w.downs[key]; known {
		return n, nil
	}
	if err := w.same(s, p); err != nil {
		return 0, err
	}
	if err := checkType(s["type"]); err != nil {
		return 0, err
	}
	total, worst := 1, map[string]int{}
	err := w.each(s, p, func(sub any, at, keyword string, r reach) error {
		deeper := 0
		if r != here {
			deeper = 1
		}
		n, err := w.down(sub, at, depth+deeper)
		switch {
		case err != nil:
			return err
		case r != apart:
			total += n
		case n > worst[keyword]:
			total += n - worst[keyword]
			worst[keyword] = n
		}
		if total > maxWork {
			return errWork
		}
		return nil
	})
	w.downs[key] = total
	return total, err
}

// target returns what a reference inside the schema points to.
func (w *workload) target(ref string) (v any, at string, err error) {
	v = w.root
	for token := range jsontext.Pointer(strings.TrimPrefix(ref, "#")).Tokens() {
		var next any
		switch c := v.(type) {
		case map[string]any:
			next = c[token]
		case []any:
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(c) {
				next = c[i]
			}
		}
		if next == nil {
			return nil, "", fmt.Errorf("$ref %.100q points to nothing", ref)
		}
		v, at = next, at+"/"+escapePointer(token)
	}
	return v, at, nil
}

func escapePointer(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}
