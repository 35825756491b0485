package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestWhatIsPruned(t *testing.T) {
	now := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	var all []Entry // one a day, the newest first, of 10 bytes each
	for day := range 10 {
		all = append(all, Entry{RunID: fmt.Sprint(day), Bytes: 10, StartedAt: now.AddDate(0, 0, -day)})
	}
	for name, c := range map[string]struct {
		p    Prune
		want string
	}{
		"all but the newest":             {Prune{Keep: 7}, "7 8 9"},
		"what is old":                    {Prune{Older: 6 * 24 * time.Hour}, "7 8 9"},
		"what is old, but for the kept":  {Prune{Keep: 9, Older: 24 * time.Hour}, "9"},
		"what has no room":               {Prune{MaxBytes: 75}, "7 8 9"},
		"no room, but for the kept":      {Prune{Keep: 9, MaxBytes: 10}, "9"},
		"old, or no room":                {Prune{Older: 8 * 24 * time.Hour, MaxBytes: 80}, "8 9"},
		"more than there is":             {Prune{Keep: 20}, ""},
		"nothing asked for lets nothing": {Prune{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var ids []string
			for _, e := range c.p.Select(all, now) {
				ids = append(ids, e.RunID)
			}
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("%q goes, want %q", got, c.want)
			}
		})
	}
}
