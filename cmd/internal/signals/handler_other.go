//go:build !windows && !(linux && (amd64 || arm64))

package signals

// catchQuiet has all of quiet delivered.
func catchQuiet() {
	for _, n := range quiet() {
		catch(n)
	}
}
