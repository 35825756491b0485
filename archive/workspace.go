package archive

import (
	"errors"
	"fmt"
	"io"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/gitpatch"
)

// keptContents are what workspace/changes.json says of the patch, which comes behind it.
type keptContents struct {
	bytes    int64 // of whole sections
	sections []expectedSection
}

type expectedSection struct {
	gitpatch.Section
	after *schema.WorkspaceFile // whose content it has
}

// maxPatched is the most of one content that is searched for secrets, in bytes. A recorder keeps no larger ones.
const maxPatched = 64 << 20

// eachPatched reads the contents of a patch, with the section's own bytes where raw is set. What is behind a section
// that cannot be read is left out. The error is f's, or that of reading.
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

// patched is what became of a patch.
type patched struct {
	secret map[string]bool // names of the sections that are left out
	have   []string        // of the others
	bytes  int64
}
