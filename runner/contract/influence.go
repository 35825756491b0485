package contract

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// InfluenceKind returns how a file can influence a check that read it. The name decides, because tools find caches
// and configuration by name.
func InfluenceKind(path, workdir, home string) string {
	base := filepath.Base(path)
	below := func(dir string) bool { return dir != "" && dir != "/" && strings.HasPrefix(path, dir+"/") }
	switch {
	case schema.InCache(path), strings.Contains(path, "/go/telemetry/"):
		return schema.InfluenceCache
	case strings.HasPrefix(base, "."), strings.HasSuffix(base, ".pth"), slices.Contains(configurations, base),
		below("/etc"), strings.Contains(path, "/.config/"):
		return schema.InfluenceConfiguration
	case below(workdir):
		return schema.InfluenceSource
	case below(home) && strings.HasPrefix(strings.TrimPrefix(path, home+"/"), "."):
		return schema.InfluenceConfiguration
	}
	return schema.InfluenceOther
}

var configurations = []string{"sitecustomize.py", "usercustomize.py", "pip.conf", "pyvenv.cfg", "npmrc", "gitconfig"}
