package view

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/assay-run/assay-run/schema"
)

// nameContainers takes over what an engine told of the containers that are listed.
func (s *Summary) nameContainers(ctx context.Context, src Source) error {
	listed := map[string]*Container{}
	for i := range s.Containers.Items {
		listed[s.Containers.Items[i].ID] = &s.Containers.Items[i]
	}
	if len(listed) == 0 {
		return nil
	}
	for line, err := range src.Lines(ctx, schema.EventsPath) {
		if err != nil {
			return err
		}
		if !bytes.Contains(line, []byte(`"containers"`)) {
			continue
		}
		var e schema.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: %w", schema.EventsPath, err)
		}
		for _, told := range e.Containers {
			if c := listed[told.ID]; c != nil && told.Name != "" {
				c.Name, c.Image = told.Name, told.Image
			}
		}
	}
	return nil
}
