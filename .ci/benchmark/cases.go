package main

import "time"

func cases(b *bench) []benchCase {
	off := []string{"--kernel", "off"}
	return []benchCase{
		{name: "true, kernel layer off", rounds: 100, bare: bare("/bin/true"), ours: b.run(off, "/bin/true"), maxOver: 12 * time.Millisecond},
		{name: "true", rounds: 100, bare: bare("/bin/true"), ours: b.run(nil, "/bin/true"), maxOver: 40 * time.Millisecond},
	}
}
