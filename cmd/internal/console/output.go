package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s exists and is not a regular file", path)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	b := bufio.NewWriterSize(temp, 256<<10)
	if err = write(b); err == nil {
		err = b.Flush()
	}
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(temp.Name(), path)
}
