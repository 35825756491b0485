package console

import (
	"io"
	"os"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
)

// Page is how a page of text looks on f: as wide as f, if that is a terminal, and
// coloured by paint if it wants colours.
func Page(f *os.File, paint view.Painter) view.Page {
	page := view.Page{Width: Width(f)}
	if Colours(f) {
		page.Paint = paint
	}
	return page
}

// WriteFile writes a file that everybody may read, whole or not at all. It follows a symbolic link.
// It refuses a path that exists and is not a regular file, because root would replace /dev/null
// with a file.
func WriteFile(path string, write func(io.Writer) error) error {
	return archive.Replace(path, write)
}
