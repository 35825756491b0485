package sandbox

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
)

// libraryDirs are the directories that ld.so(8) searches after those that a program names.
var libraryDirs = []string{"/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"}

// Libraries lists the files that a dynamic program loads before it runs: its interpreter and all libraries that these
// need. It reads the files and executes nothing. For a static program, and for other files, it returns none.
func Libraries(program string) []string {
	var found []string
	seen := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		f, err := elf.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		if s := f.Section(".interp"); s != nil {
			if data, err := s.Data(); err == nil {
				if interp := strings.TrimRight(string(data), "\x00"); !seen[interp] {
					seen[interp] = true
					found = append(found, interp)
				}
			}
		}
		names, _ := f.ImportedLibraries()
		dirs := searched(f, path)
		for _, name := range names {
			if seen[name] {
				continue
			}
			for _, dir := range dirs {
				at := filepath.Join(dir, name)
				if lib, err := elf.Open(at); err == nil {
					same := lib.Machine == f.Machine && lib.Class == f.Class
					lib.Close()
					if same {
						seen[name] = true
						found = append(found, at)
						visit(at)
						break
					}
				}
			}
		}
	}
	visit(program)
	return found
}

// searched lists the directories in which a program's libraries are searched.
func searched(f *elf.File, path string) []string {
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, _ := f.DynString(tag)
		for _, p := range paths {
			for _, dir := range filepath.SplitList(p) {
				dirs = append(dirs, strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}",
					filepath.Dir(path)).Replace(dir))
			}
		}
	}
	dirs = append(dirs, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	triplet := map[elf.Machine]string{elf.EM_X86_64: "x86_64-linux-gnu", elf.EM_AARCH64: "aarch64-linux-gnu"}[f.Machine]
	for _, dir := range libraryDirs {
		if triplet != "" {
			dirs = append(dirs, filepath.Join(dir, triplet))
		}
		dirs = append(dirs, dir)
	}
	return dirs
}
