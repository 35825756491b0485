package sandbox

import "testing"

// TestRenewedLogin holds what of a login is written to the real home: agents start programs that a login names.
func TestRenewedLogin(t *testing.T) {
	t.Parallel()
	const rest = `,"expires":1,"at":"2026-01-01T00:00:00Z"`
	before := `{"a": {"access": "old.x", "expires": 1, "at": "2026-01-01T00:00:00Z"}, "url": "https://a"}` + "\n"
	for what, c := range map[string]struct{ after, want, lost string }{
		"tokens and times": {
			`{"url":"https://a","a":{"access":"1//new-x.y_z+/==","expires":2.5,"at":"2026-02-01T00:00:00.5Z"}}`,
			`{"a": {"access": "1//new-x.y_z+/==", "expires": 2.5, "at": "2026-02-01T00:00:00.5Z"}, ` +
				`"url": "https://a"}` +
				"\n", "",
		},
		"a program":       {`{"a":{"access":"!id"` + rest + `},"url":"https://a"}`, before, `"/a/access"`},
		"a path":          {`{"a":{"access":"/x"` + rest + `},"url":"https://a"}`, before, `"/a/access"`},
		"another host":    {`{"a":{"access":"old.x"` + rest + `},"url":"https://b"}`, before, `"/url"`},
		"another kind":    {`{"a":{"access":1` + rest + `},"url":"https://a"}`, before, `"/a/access"`},
		"a new member":    {`{"a":{"access":"old.x"` + rest + `,"key":"k"},"url":"https://a"}`, before, `"/a/key"`},
		"a missing one":   {`{"a":{"access":"old.x"` + rest + `}}`, before, `"/url"`},
		"only its layout": {`{"a":{"access":"old.x"` + rest + `},"url":"https://a"}`, before, ""},
	} {
		got, lost, err := renewLogin([]byte(before), []byte(c.after))
		if c.lost != "" {
			c.lost += " is not a token or a time that was there before"
		}
		if err != nil || string(got) != c.want || lost != c.lost {
			t.Errorf("%s: %v, lost %q:\n%s", what, err, lost, got)
		}
	}
	for _, bad := range []string{"", "{", `{"a":1,"a":2}`, "{}{"} {
		if got, _, err := renewLogin([]byte(before), []byte(bad)); err == nil && string(got) != before {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
