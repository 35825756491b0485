package main

import (
	"errors"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/vmtest"
)

// TestPrivateHomeInContainers runs commands with a private home in containers. Where namespaces are possible, the layer
// is in memory, because the kernel takes no upper directory on the overlay of the container. Elsewhere nothing is run.
func TestPrivateHomeInContainers(t *testing.T) {
	in := container{t, enginetest.Docker(t), staticProgram(t)}
	const private = `exec 2>&1; ` + // Docker has no order between the two
		`cd /tmp && echo real >~/old && assay-run -q --kernel off --mode workspace-write --home private ` +
		`--spool-dir /tmp/spool --redaction-key ephemeral -o /tmp/r.tar.gz -- ` +
		`sh -c 'cat ~/old; echo new >~/new; echo changed >~/old; cat ~/new ~/old; mount | grep " $HOME "'; ` +
		`echo status $?; ` +
		`cat ~/old; ls ~/new; ls -d /dev/shm/* /var/tmp/* 2>/dev/null`
	for _, c := range []struct {
		name  string
		flags []string
		bare  bool // without what the sandbox needs
	}{
		{"of root", nil, false},
		{"of an ordinary user", []string{"--user", "1000"}, false},
		{"without what the sandbox needs", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := container{t, in.engine, in.exe}
			flags := c.flags
			if !c.bare {
				flags = in.remedied(flags, "sandbox/files")
			}
			run := slices.Concat([]string{"run", "--rm", "--network=none", "-v", in.exe + ":/bin/assay-run"}, flags,
				[]string{enginetest.Image, "sh", "-c", private})
			out, _ := in.engine.Command(run...).CombinedOutput()
			inside, after, _ := strings.Cut(string(out), "status ")
			want, status := `^real\nnew\nchanged\noverlay on `, "0"
			if c.bare {
				want, status = `nothing was run: there is no private home for the command: .*\n.*hint: `, "125"
			}
			if !regexp.MustCompile(want).MatchString(inside) ||
				!regexp.MustCompile("^"+status+`\nreal\nls: .*new: No such file or directory\n$`).MatchString(after) {
				t.Errorf("%s", out)
			}
		})
	}
}

// TestPrivateHomeOnLinux61 runs a command with a private home on the oldest kernel that is supported, as root and as an
// ordinary user.
func TestPrivateHomeOnLinux61(t *testing.T) {
	layertest.Host(t)
	exe := staticProgram(t)
	kernel, err := vmtest.Kernel("6.1", runtime.GOARCH)
	var overlay string
	if err == nil {
		overlay, err = vmtest.Module(kernel, runtime.GOARCH, "fs/overlayfs/overlay.ko")
	}
	if errors.Is(err, vmtest.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"/bin/assay-run": exe, "/overlay.ko": overlay}
	out := vmtest.Boot(t, vmtest.Machine{MemoryMiB: 1024, Kernel: kernel, Files: files, Script: `
insmod /overlay.ko || exit 1
export PATH=/bin TMPDIR=/tmp
mkdir -p /home/root /home/agent /work /var/tmp /dev/shm
for d in /var/tmp /dev/shm; do mount -t tmpfs none $d; chmod 1777 $d; done
echo "agent:x:1000:1000:agent:/home/agent:/bin/sh" >>/etc/passwd
for d in root agent; do echo real >/home/$d/old; done
chown -R 1000:1000 /home/agent
chmod 1777 /work
cat >/private <<'END'
cd /work
assay-run -q --kernel off --mode workspace-write --home private --redaction-key ephemeral --spool-dir /tmp/spool-$1 \
	-o /tmp/$1.tar.gz -- sh -c 'cat ~/old; echo new >~/new; echo changed >~/old; cat ~/new ~/old'
echo "$1: status $?, then $(cat ~/old) $(ls ~/new 2>/dev/null)"
END
HOME=/home/root sh /private root </dev/null 2>&1 | cat
su agent -c "export PATH=/bin HOME=/home/agent TMPDIR=/tmp; sh /private user" </dev/null 2>&1 | cat
`}, "6.1", 10*time.Minute)
	for _, who := range []string{"root", "user"} {
		if want := "real\nnew\nchanged\n" + who + ": status 0, then real \n"; !strings.Contains(strings.ReplaceAll(out,
			"\r", ""), want) {
			t.Errorf("%s is missing:\n%s", want, out)
		}
	}
}
