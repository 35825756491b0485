package view

import (
	"path"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Ranks of files. Lower ranks come first: they are more interesting to a reviewer.
const (
	rankSecret = iota // keys, passwords and tokens
	rankPerson        // files of users and the host's configuration: /home, /etc, /var
	rankElse
	rankSystem // programs, libraries, and the kernel's files
	rankWorkspace
)

// secretNames are the base names of files and directories that hold secrets.
var secretNames = map[string]bool{
	".ssh": true, ".gnupg": true, ".aws": true, ".azure": true, ".kube": true, ".password-store": true, "gcloud": true,
	"shadow": true, "gshadow": true, "sudoers": true, "sudoers.d": true, ".netrc": true, "_netrc": true,
	".pgpass": true, ".my.cnf": true,
	".git-credentials": true, ".npmrc": true, ".pypirc": true, ".env": true, ".vault-token": true, "credentials": true,
	"credentials.json":  true,
	".credentials.json": true, "keyrings": true, "secrets": true, ".bash_history": true, ".zsh_history": true,
	"environ": true,
	"id_rsa":  true, "id_dsa": true, "id_ecdsa": true, "id_ed25519": true,
}

// secretPaths are ends of other paths that hold secrets.
var secretPaths = []string{".docker/config.json", ".config/gh/hosts.yml", ".cargo/credentials.toml",
	"/var/run/docker.sock", "/run/docker.sock"}

// holdsSecrets reports whether a file's name suggests that it holds secrets.
func holdsSecrets(name string) bool {
	name = strings.TrimSuffix(name, schema.OtherMounts)
	for part := range strings.SplitSeq(name, "/") {
		if secretNames[part] {
			return true
		}
	}
	for _, end := range secretPaths {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	switch path.Ext(name) {
	case ".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore":
		return !rooted(name, "/usr/share", "/usr/lib", "/etc/ssl/certs")
	}
	return false
}

// rooted reports whether a path is one of the directories or below it.
func rooted(name string, dirs ...string) bool {
	for _, dir := range dirs {
		if name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/") {
			return true
		}
	}
	return false
}

// fileRank returns the rank of a file that a run in workspace touched.
func fileRank(name, workspace string) int {
	switch {
	case holdsSecrets(name):
		return rankSecret
	case workspace != "" && rooted(name, workspace):
		return rankWorkspace
	case rooted(name, "/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store", "/proc", "/sys", "/dev"):
		return rankSystem
	case rooted(name, "/home", "/root", "/etc", "/var", "/srv", "/Users"):
		return rankPerson
	}
	return rankElse
}

// hostRank puts remote hosts before loopback addresses, and these before unix sockets.
func hostRank(endpoint string) int {
	switch {
	case strings.HasPrefix(endpoint, "unix:"), strings.HasPrefix(endpoint, "@"):
		return 2
	case strings.HasPrefix(endpoint, "127."), strings.HasPrefix(endpoint, "[::1]"):
		return 1
	}
	return 0
}

// programRank puts programs that the run made first, then those outside system directories, then those in /usr/local.
func programRank(p *Program, workspace string) int {
	switch {
	case p.Made:
		return 0
	case fileRank(p.Exe, workspace) != rankSystem || rooted(p.Exe, "/proc", "/sys", "/dev"):
		return 1
	case rooted(p.Exe, "/usr/local"):
		return 2
	}
	return 3
}
