package view

import (
	"context"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// ReadProcesses fills a table from a bundle's kernel layer.
func ReadProcesses(ctx context.Context, b Items) (*facts.Table, error) {
	t := facts.NewTable()
	for it, err := range b.Items(ctx, schema.KernelPath) {
		if err != nil {
			return nil, err
		}
		t.Add(it.Kernel)
	}
	return t, nil
}
