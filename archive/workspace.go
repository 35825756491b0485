package archive

import (
	"errors"
	"fmt"
	"io"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/gitpatch"
)

// keptContents is what workspace/changes.json says about the patch, which follows it in the bundle.
type keptContents struct {
	bytes    int64 // of whole sections
	sections []expectedSection
}

type expectedSection struct {
	gitpatch.Section
	after *schema.WorkspaceFile // the file whose content the section has
}

// maxPatched limits a content that is searched for secrets, in bytes. A recorder keeps no larger ones.
const maxPatched = 64 << 20

// eachPatched calls f with the contents of a patch, and with each section's own bytes if raw is true. It stops silently
// at a section that cannot be parsed. Errors are those of f and of reading.
func eachPatched(in io.Reader, raw bool, f func(name string, content, raw []byte) error) error {
	r := gitpatch.NewReader(in)
	if raw {
		r.KeepRaw()
	}
	for {
		s, err := r.Next()
		var content []byte
		if err == nil {
			content, err = io.ReadAll(io.LimitReader(r, maxPatched+1))
		}
		switch {
		case err == io.EOF, errors.Is(err, gitpatch.ErrForm):
			_, err = io.Copy(io.Discard, in)
			return err
		case err != nil:
			return err
		case len(content) > maxPatched:
			return fmt.Errorf("%.200q has a content of more than %d bytes", s.Name, maxPatched)
		}
		var own []byte
		if raw {
			own = r.Raw()
		}
		if err := f(s.Name, content, own); err != nil {
			return err
		}
	}
}

// patched is the result of cleaning a patch.
type patched struct {
	secret map[string]bool // names of the sections with secrets, which are removed
	have   []string        // names of the other sections
	bytes  int64           // of the new patch
}
