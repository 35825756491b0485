package trial

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/runner/suite/task"
)

// ArtifactsFile is the name of the file with the artifacts of an attempt: in [Plan].Dir, and beside the bundle.
const ArtifactsFile = "artifacts.tar"

// artifactsAt is a directory of the container that a task with artifacts keeps in any case.
const artifactsAt = "/logs/artifacts"

// keepArtifacts writes the artifacts that a task names to the ArtifactsFile in dir, as they are in a container. It
// writes to out what is missing, or too large. If the file exists, it does nothing: the tests ran in another container
// before.
func keepArtifacts(ctx context.Context, out io.Writer, container string, named []task.Artifact, dir string) {
	if len(named) == 0 {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, ArtifactsFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return
	}
	if err != nil {
		fmt.Fprintf(out, "the artifacts are not kept: %v\n", err)
		return
	}
	w := &artifacts{to: tar.NewWriter(f), left: maxChanges}
	for _, a := range append([]task.Artifact{{Source: artifactsAt, Destination: "."}}, named...) {
		if err := w.copy(ctx, container, a); err != nil {
			fmt.Fprintf(out, "the artifact %s is not kept: %v\n", a.Source, err)
		}
	}
	if w.lacks > 0 {
		fmt.Fprintf(out, "%d files of the artifacts are not kept: together they have more than %d bytes\n", w.lacks,
			maxChanges)
	}
	if err := errors.Join(w.to.Close(), f.Close()); err != nil {
		fmt.Fprintf(out, "the artifacts are not kept: %v\n", err)
	}
}

// artifacts writes an ArtifactsFile.
type artifacts struct {
	to    *tar.Writer
	left  int64 // of maxChanges
	lacks int
}

// copy adds one artifact.
func (w *artifacts) copy(ctx context.Context, container string, a task.Artifact) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, "docker", "cp", container+":"+a.Source, "-")
	stream, err := cmd.StdoutPipe()
	said := &strings.Builder{}
	cmd.Stderr = said
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	err = w.add(tar.NewReader(stream), a)
	if err != nil {
		stop()
	}
	if ended := cmd.Wait(); ended != nil && said.Len() > 0 {
		text := strings.TrimSpace(said.String())
		return errors.New(text[max(0, len(text)-maxSaid):])
	} else if err == nil {
		err = ended
	}
	return err
}

// add adds the files of a tar file that have an artifact's base name, or are below it.
func (w *artifacts) add(r *tar.Reader, a task.Artifact) error {
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return err
		}
		_, below, _ := strings.Cut(path.Clean(head.Name), "/")
		if head.Name = path.Join(a.Destination, below); head.Name == "." || excluded(below, a.Exclude) {
			continue
		}
		if head.Typeflag == tar.TypeDir {
			head.Name += "/"
		}
		if head.Size > w.left {
			w.lacks++
			continue
		}
		w.left -= head.Size
		if err := w.to.WriteHeader(head); err != nil {
			return err
		}
		if _, err := io.Copy(w.to, r); err != nil {
			return err
		}
	}
}

// excluded reports whether a pattern matches some of the consecutive parts of a name.
func excluded(name string, patterns []string) bool {
	parts := strings.Split(name, "/")
	for _, pattern := range patterns {
		for i := range parts {
			for j := i + 1; j <= len(parts); j++ {
				if is, _ := path.Match(pattern, path.Join(parts[i:j]...)); is {
					return true
				}
			}
		}
	}
	return false
}
