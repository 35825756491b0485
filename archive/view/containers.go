package view

import (
	"context"

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
	for it, err := range src.Items(ctx, schema.EventsPath) {
		if err != nil {
			return err
		}
		for _, told := range it.Event.Containers {
			if c := listed[told.ID]; c != nil && told.Name != "" {
				c.Name, c.Image = told.Name, told.Image
			}
		}
	}
	return nil
}
