package view

import (
	"strings"
	"testing"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

func TestABlindSpotCountsUnlessTheBundleSaysThatItWasNotUsed(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		spot schema.BlindSpot
		want string // of the first gap; empty for none
	}{
		"not used":  {schema.BlindSpot{Name: "something new", Exercised: &no}, ""},
		"used":      {schema.BlindSpot{Name: "something new", Exercised: &yes}, "the run used"},
		"not known": {schema.BlindSpot{Name: "something new"}, "it is not known whether"},
		"an amount": {schema.BlindSpot{Name: "bytes written to character devices and pipes",
			Exercised: &yes}, ""},
		"recorded elsewhere": {schema.BlindSpot{Name: "FICLONE and other ioctls that change a file"}, ""},
		"marked, not known":  {schema.BlindSpot{Name: "a name in a private mapping of a file"}, ""},
		"marked, and was used": {schema.BlindSpot{Name: "a name in a private mapping of a file", Exercised: &yes},
			"the run used"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &archive.Documents{}
			d.Health.KernelLayer, d.Health.CgroupCorrelation = schema.Complete, schema.Clean
			d.Health.Coverage = []schema.Coverage{{Dimension: "filesystem",
				KnownBlindSpots: []schema.BlindSpot{c.spot}}}
			gaps := Claim(d, Files)
			if c.want == "" && len(gaps) > 0 || c.want != "" &&
				(len(gaps) != 1 || !strings.HasPrefix(gaps[0].Text, c.want) || gaps[0].Remedy == "") {
				t.Errorf("gaps %q, want %q", gaps, c.want)
			}
		})
	}
}
