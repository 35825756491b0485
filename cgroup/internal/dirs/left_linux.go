package dirs

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Left tells of a cgroup of a v1 hierarchy, by the number of that in
// proc_pid_cgroup(5), by its own id, which is its inode's, and by its path as the
// kernel has it, whether it is outside of the session although the session has a
// cgroup in that hierarchy. It names the controllers there, and tells whether one of
// them has a limit of the session's.
func (s *Session) Left(hierarchy int, id uint64, path string) (controllers string, limited, left bool) {
	for _, d := range s.dirs {
		if d.v2 || d.number != hierarchy {
			continue
		}
		for _, dir := range nested(d.path) {
			var st unix.Stat_t
			if unix.Stat(dir, &st) != nil || st.Ino != id {
				continue
			}
			if rel, err := filepath.Rel(d.path, dir); err == nil { // and so where the session's is
				s.mu.Lock()
				s.seen[hierarchy] = strings.TrimSuffix(strings.TrimSuffix(path, rel), "/")
				s.mu.Unlock()
			}
			return "", false, false
		}
		s.mu.Lock()
		own := s.seen[hierarchy]
		s.mu.Unlock()
		if own != "" && strings.HasPrefix(path, own+"/") {
			return "", false, false // it has been removed since
		}
		return d.controllers, d.limited, true
	}
	return "", false, false
}
