//go:build !linux

package sandbox

// outsideSockets lists nothing: there is no sandbox here.
func (p *Profile) outsideSockets([]string, bool) []string { return nil }
