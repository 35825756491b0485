package console

import "testing"

func TestTheVersionOfAModule(t *testing.T) {
	for v, want := range map[string]string{
		"v0.2.1":                                     "0.2.1",
		"v0.2.1-rc.1":                                "0.2.1-rc.1",
		"v0.2.1+dirty":                               "0.2.1+dirty",
		"v0.0.0-20261129054102-d9a2285bb1c7":         number + "+d9a2285",
		"v0.2.2-0.20261129054102-d9a2285bb1c7":       number + "+d9a2285",
		"v0.2.2-0.20261129054102-d9a2285bb1c7+dirty": number + "+d9a2285.dirty",
		"(devel)":                                    number + "+devel",
		"":                                           number + "+devel",
	} {
		if got := ofModule(v); got != want {
			t.Errorf("%s: %s, want %s", v, got, want)
		}
	}
}
