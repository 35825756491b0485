package modelfile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Budget limits what a run may ask of models. Zero means no limit.
type Budget struct {
	// Requests limits the requests for an answer. They count when they are sent.
	Requests Count `json:"requests,omitzero"`
	// Tokens limits input plus output tokens. They count when the answer has come.
	Tokens Count `json:"tokens,omitzero"`
	// Cost is in the currency of the price list, which it needs.
	Cost float64 `json:"cost,omitzero"`
	// End ends the run when the first request is refused because a limit is reached.
	End bool `json:"end,omitzero"`
}

// Limited reports whether any limit is set.
func (b *Budget) Limited() bool { return b.Requests != 0 || b.Tokens != 0 || b.Cost != 0 }

// Measured reports whether the usage in answers must be known.
func (b *Budget) Measured() bool { return b.Tokens != 0 || b.Cost != 0 }

// Check returns an error for each invalid limit.
func (b *Budget) Check() error {
	var faults []error
	for _, l := range []struct {
		name string
		n    float64
	}{{"requests", float64(b.Requests)}, {"tokens", float64(b.Tokens)}, {"cost", b.Cost}} {
		if !(l.n >= 0) || math.IsInf(l.n, 0) {
			faults = append(faults, fmt.Errorf("the limit of %s is %v; it must be a number above 0", l.name, l.n))
		}
	}
	return errors.Join(faults...)
}

// String returns the budget in the form that Set reads.
func (b *Budget) String() string {
	var parts []string
	if b.Requests != 0 {
		parts = append(parts, "requests="+b.Requests.String())
	}
	if b.Tokens != 0 {
		parts = append(parts, "tokens="+b.Tokens.String())
	}
	if b.Cost != 0 {
		parts = append(parts, "cost="+strconv.FormatFloat(b.Cost, 'f', -1, 64))
	}
	return strings.Join(parts, ",")
}

func (*Budget) Type() string { return "LIMITS" }

// Set reads limits such as requests=20,tokens=2M,cost=5. It does not change End. The error joins all faults.
func (b *Budget) Set(text string) error {
	now := Budget{End: b.End}
	var faults []error
	given := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name {
		case "requests":
			err = now.Requests.Set(value)
		case "tokens":
			err = now.Tokens.Set(value)
		case "cost":
			if now.Cost, err = strconv.ParseFloat(value, 64); err != nil || !(now.Cost > 0) || math.IsInf(now.Cost, 0) {
				err = fmt.Errorf("%.40q is not a number above 0", value)
			}
		default:
			err = errors.New("the limits are requests, tokens and cost, as in requests=20,tokens=2M,cost=5")
		}
		if err == nil && given[name] {
			err = errors.New("it is given twice")
		}
		given[name] = true
		if err != nil {
			faults = append(faults, fmt.Errorf("%.40q: %w", name, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	*b = now
	return nil
}

// Count is a number that may be written with a decimal suffix: 20, 500k, 1.5M or 1G.
type Count int64

var countUnits = []struct {
	suffix string
	size   float64
}{{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}}

func (c Count) String() string { return strconv.FormatInt(int64(c), 10) }

// Set reads a count of at least 1.
func (c *Count) Set(text string) error {
	digits, size := text, 1.0
	for _, u := range countUnits {
		if d, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, size = d, u.size
		}
	}
	n, err := strconv.ParseFloat(digits, 64)
	if n *= size; err != nil || !(n >= 1 && n <= 1e15) || n != math.Trunc(n) ||
		strings.Trim(digits, "0123456789.") != "" {
		return fmt.Errorf("%.40q is not a whole number above 0, such as 20, 500k or 2M", text)
	}
	*c = Count(n)
	return nil
}

// UnmarshalJSON accepts a number or a string.
func (c *Count) UnmarshalJSON(b []byte) error { return c.Set(string(bytes.Trim(b, `"`))) }
