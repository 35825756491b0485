package dirs

import (
	"os"

	"golang.org/x/sys/unix"
)

// noteKey is the extended attribute of a session's directory on the primary hierarchy.
const noteKey = "user.assay-run.note"

// Note keeps a text with the session, for the Sweep that finds it without a runner and a
// guard.
func (s *Session) Note(text string) error {
	if err := unix.Setxattr(s.dirs[0].path, noteKey, []byte(text), 0); err != nil {
		return &os.PathError{Op: "setxattr " + noteKey, Path: s.dirs[0].path, Err: err}
	}
	return nil
}

// note is the text of a session in a directory. It is empty if there is none, or if the
// directory is not this user's: another user may have written it.
func note(d dir) string {
	var st unix.Stat_t
	text := make([]byte, 4096)
	if unix.Stat(d.path, &st) != nil || int(st.Uid) != os.Geteuid() {
		return ""
	}
	n, err := unix.Getxattr(d.path, noteKey, text)
	if err != nil {
		return ""
	}
	return string(text[:n])
}
