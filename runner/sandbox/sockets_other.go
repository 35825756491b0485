//go:build !linux

package sandbox

// outsideSockets lists nothing: there is no sandbox here.
func (p *Profile) outsideSockets() func([]string) []string {
	return func([]string) []string { return nil }
}
