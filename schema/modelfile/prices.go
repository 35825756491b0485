package modelfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// Prices is a price list. A nil list has no prices.
type Prices struct {
	list []Price
	// Digest is "sha256:" and 64 hex digits of the file's bytes.
	Digest string
}

// Price is the cost of a million tokens of a model, in the currency of the list.
type Price struct {
	// Model is a glob for model names. The first matching entry counts.
	Model string `json:"model"`
	// Input and Output are required. Without the other two, tokens that are read from or written to a cache cost as
	// much as other input.
	Input         *float64 `json:"input"`
	CacheRead     *float64 `json:"cache_read"`
	CacheCreation *float64 `json:"cache_creation"`
	Output        *float64 `json:"output"`
}

// Limits of a price list.
const (
	maxPricesFile = 1 << 20 // bytes
	maxPrices     = 4096
	maxPrice      = 1e9
)

// LoadPrices reads a price list in YAML or JSON. The error joins all faults.
func LoadPrices(path string) (*Prices, error) {
	data, err := config.ReadFile(path, maxPricesFile)
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	p, err := ParsePrices(data)
	if err != nil {
		return nil, fmt.Errorf("prices %s: %w", path, err)
	}
	return p, nil
}

// ParsePrices parses a price list. The error joins all faults.
func ParsePrices(data []byte) (*Prices, error) {
	if len(data) > maxPricesFile {
		return nil, fmt.Errorf("larger than %d bytes", maxPricesFile)
	}
	var file struct {
		Version *int64  `json:"version"`
		Models  []Price `json:"models"`
	}
	err := config.Decode(data, config.YAML, &file)
	faults := []error{err}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if file.Version != nil && *file.Version != 1 {
		fault("version: found %d, only 1 is supported", *file.Version)
	}
	switch {
	case err == nil && len(file.Models) == 0:
		fault("models: the list is empty")
	case len(file.Models) > maxPrices:
		fault("models: found %d, at most %d are allowed", len(file.Models), maxPrices)
	}
	for i, m := range file.Models {
		if err == nil && m.Model == "" {
			fault("models[%d]: model is missing", i)
		} else if invalid := config.CheckGlob(m.Model); invalid != nil {
			fault("models[%d]: model: %w", i, invalid)
		}
		for _, part := range []struct {
			name   string
			price  *float64
			needed bool
		}{
			{"input", m.Input, true}, {"cache_read", m.CacheRead, false},
			{"cache_creation", m.CacheCreation, false}, {"output", m.Output, true},
		} {
			switch {
			case part.price == nil && part.needed && err == nil:
				fault("models[%d]: %s is missing", i, part.name)
			case part.price != nil && !(*part.price >= 0 && *part.price <= maxPrice):
				fault("models[%d]: %s is %v; a price is a number from 0 to %.0f", i, part.name, *part.price, maxPrice)
			}
		}
	}
	sum := sha256.Sum256(data)
	return &Prices{list: file.Models, Digest: "sha256:" + hex.EncodeToString(sum[:])}, errors.Join(faults...)
}

// Of returns the price of the first model that has one, or nil.
func (p *Prices) Of(models ...string) *Price {
	if p == nil {
		return nil
	}
	for _, name := range models {
		for i := range p.list {
			if name != "" && doublestar.MatchUnvalidated(p.list[i].Model, name) {
				return &p.list[i]
			}
		}
	}
	return nil
}

// Cost returns the cost of tokens; nil if the price or a count is unknown.
func (p *Price) Cost(u *schema.ModelUsage) *float64 {
	if p == nil || u.InputTokens == nil || u.OutputTokens == nil {
		return nil
	}
	return new(p.Known(u))
}

// Known returns the cost of the tokens whose count is known.
func (p *Price) Known(u *schema.ModelUsage) float64 {
	tokens := func(n *int64) float64 {
		if n == nil {
			return 0
		}
		return float64(*n)
	}
	or := func(price *float64) float64 {
		if price == nil {
			price = p.Input
		}
		return *price
	}
	read, created := tokens(u.CacheReadInputTokens), tokens(u.CacheCreationInputTokens)
	uncached := max(0, tokens(u.InputTokens)-read-created)
	return Rounded((uncached**p.Input + read*or(p.CacheRead) + created*or(p.CacheCreation) +
		tokens(u.OutputTokens)**p.Output) / 1e6)
}

// Rounded removes floating-point noise from a sum of money.
func Rounded(money float64) float64 {
	if money > 1e6 {
		return money
	}
	return math.Round(money*1e9) / 1e9
}
