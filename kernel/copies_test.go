//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"unsafe"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	children["copies"] = func([]string) {
		name := []byte("a-0000\x00")
		over := make(chan bool)
		go func() {
			for n := 0; ; n++ {
				name[0] = "ab"[n>>8&1] // for long enough that the kernel may see each
				select {
				case <-over:
					return
				default:
				}
			}
		}()
		for i := range 1000 {
			copy(name[1:], "-"+strconv.Itoa(1000+i))
			raw("mkdirat", atFDCWD, uintptr(unsafe.Pointer(unsafe.SliceData(name))), 0o700)
		}
		over <- true
	}
}

// The name of each directory is the kernel's own copy of it, while a thread changes the
// memory that it came from.
func TestNamesAreTheKernelsCopies(t *testing.T) {
	s, dir, err := observed(t, "copies", nil)
	if err != nil {
		t.Fatal(err)
	}
	var made, wrong, read int
	for _, e := range s.find(schema.KindMkdir, nil) {
		made++
		if _, err := os.Lstat(e.Value); err != nil || filepath.Dir(e.Value) != dir {
			wrong++
		}
		if !e.KernelCopy || e.Claimed {
			read++
		}
	}
	if made != 1000 || wrong+read > 0 {
		t.Errorf("%d directories, %d with the wrong name, %d not by the kernel's copy", made, wrong, read)
	}
}
