package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Input is a bundle that a user named.
type Input struct {
	// Name is what the user called it; "-" is standard input.
	Name string
	// Path is the file to read, a copy for standard input.
	Path string
}

// Open opens it as [Open] does, with its name in errors.
func (in Input) Open() (*Reader, error) { return openAs(in.Path, in.Name) }

// Verified verifies it, and opens what was verified. The Reader of a bundle that is
// damaged or invalid, as the report then says, reads what can be read; of one that
// is unreadable there is none.
func (in Input) Verified(ctx context.Context) (*Reader, *Report, error) {
	report, err := Verify(ctx, in.Path)
	if err != nil {
		return nil, nil, err
	}
	if report.Class() == Unreadable || report.Identity == "" {
		return nil, report, nil
	}
	r, err := in.Open()
	if err == nil && r.Identity() != report.Identity {
		err = fmt.Errorf("%s was replaced while it was read", in.Name)
	}
	if err != nil {
		return nil, report, err
	}
	if r.sound = report.OK(); !r.sound {
		r.Tolerate()
	}
	return r, report, nil
}

// Inputs are the bundles of one command.
type Inputs struct {
	All  []Input
	copy *os.File
}

// Close removes the copy of standard input.
func (in *Inputs) Close() error {
	if in.copy == nil {
		return nil
	}
	err := os.Remove(in.copy.Name())
	if errors.Is(err, os.ErrNotExist) {
		err = nil // it went when it was made
	}
	return errors.Join(err, in.copy.Close())
}

// OpenInputs finds the files behind names. It copies stdin for "-", since a
// bundle is read more than once; nil refuses that. A context that ends stops the
// copying. On Linux the copy has no name, so that nothing is left after a kill.
func OpenInputs(ctx context.Context, names []string, stdin io.Reader) (*Inputs, error) {
	in := &Inputs{}
	for _, name := range names {
		path := name
		if name == "-" {
			var err error
			if path, err = in.spool(ctx, stdin); err != nil {
				in.Close()
				return nil, fmt.Errorf("read a bundle from standard input: %w", err)
			}
		}
		in.All = append(in.All, Input{Name: name, Path: path})
	}
	return in, nil
}

func (in *Inputs) spool(ctx context.Context, stdin io.Reader) (string, error) {
	if stdin == nil {
		return "", errors.New("this command does not read it")
	}
	if in.copy != nil {
		return "", errors.New(`"-" can be given once`)
	}
	f, err := os.CreateTemp("", "assay-review-*")
	if err != nil {
		return "", err
	}
	in.copy = f
	path := f.Name()
	nameless := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if _, err := os.Stat(nameless); err == nil && os.Remove(path) == nil {
		path = nameless
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(f, stdin)
		copied <- err
	}()
	select {
	case err = <-copied:
	case <-ctx.Done(): // the reader may wait for ever
		err = ctx.Err()
	}
	return path, err
}
