package sandbox

// Secrets lists, below ~, the keys and tokens of programs that are hidden from the command. A rule of a policy that
// names one of these paths, or something in it, decides instead: allowRead: ["~/.ssh/known_hosts"].
var Secrets = []string{
	"~/.ssh",             // keys, hosts
	"~/.gnupg",           // keys
	"~/.netrc",           // passwords of hosts
	"~/.git-credentials", // git
	"~/.config/git/credentials",
	"~/.config/gh", // GitHub
	"~/.config/hub",
	"~/.config/glab-cli",    // GitLab
	"~/.aws",                // Amazon
	"~/.azure",              // Microsoft
	"~/.config/gcloud",      // Google
	"~/.config/doctl",       // DigitalOcean
	"~/.oci",                // Oracle
	"~/.kube",               // Kubernetes
	"~/.docker/config.json", // registries of containers
	"~/.config/containers/auth.json",
	"~/.terraform.d/credentials.tfrc.json",
	"~/.vault-token",
	"~/.config/sops",
	"~/.config/age",
	"~/.pypirc", // registries of packages
	"~/.cargo/credentials.toml",
	"~/.cargo/credentials",
	"~/.gem/credentials",
	"~/.m2/settings-security.xml",
	"~/.pgpass", // databases
	"~/.my.cnf",
	"~/.password-store", // passwords
	"~/.local/share/keyrings",
	"~/.local/share/kwalletd",
	"~/.config/op",
	"~/.mozilla", // browsers
	"~/.config/google-chrome",
	"~/.config/chromium",
	"~/.config/BraveSoftware",
}
