package vmtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// ErrMissing is wrapped by an error if the host lacks what a machine needs. The message
// names the Debian package.
var ErrMissing = errors.New("missing on this host")

// platforms are the machines that can be emulated, by GOARCH.
var platforms = map[string]struct{ qemu, pkg, machine, cpu, console string }{
	"amd64": {"qemu-system-x86_64", "qemu-system-x86", "pc", "max", "ttyS0"},
	"arm64": {"qemu-system-aarch64", "qemu-system-arm", "virt", "cortex-a72", "ttyAMA0"},
}

// Machine is a virtual machine to boot once.
type Machine struct {
	// Arch is its instruction set, as GOARCH; empty is this host's.
	Arch string
	// Kernel is the path of a kernel image; see Kernel.
	Kernel string
	// Cmdline is added to the kernel's command line, such as "lsm=bpf".
	Cmdline string
	// MemoryMiB is 512 when zero.
	MemoryMiB int
	// CPUs is 1 when zero. More take turns in one thread of the emulator, which crashes with a thread for each.
	CPUs int
	// Files are put into the root file system: path in the machine -> path on
	// the host. All of them are executable.
	Files map[string]string
	// Script is run by /bin/sh, which is the first process. /proc, /sys, /dev and /tmp are
	// mounted, and busybox's commands are in PATH.
	Script string
	// Systemd boots Debian's systemd with dbus and logind. The script is then a service, and
	// the users are root and user (1000).
	Systemd bool
	// Packages are further Debian packages of a machine with systemd.
	Packages []string
}

const doneMark = "vmtest: script ended with status "

// Run boots the machine, waits until its script has ended, and returns what the console
// printed, with lines ended by "\n". It returns an error, and the output, if the script
// failed, the kernel crashed, or ctx ended.
func (m *Machine) Run(ctx context.Context) (output string, err error) {
	arch := m.Arch
	if arch == "" {
		arch = runtime.GOARCH
	}
	p, ok := platforms[arch]
	if !ok {
		return "", fmt.Errorf("%w: an emulator for %s", ErrMissing, arch)
	}
	qemu, err := exec.LookPath(p.qemu)
	if err != nil {
		return "", fmt.Errorf("%w: %s (Debian package %s)", ErrMissing, p.qemu, p.pkg)
	}
	busybox, err := busyboxFor(arch)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "vmtest-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	initrd := filepath.Join(dir, "initrd.gz")
	if err := m.writeInitrd(initrd, busybox, arch); err != nil {
		return "", fmt.Errorf("build the initial file system: %w", err)
	}
	memory := m.MemoryMiB
	if memory == 0 {
		memory = 512
	}
	cmdline := m.Cmdline
	if m.Systemd {
		// The masked units need files that the packages' scripts would have made.
		cmdline += " systemd.wants=vmtest.service systemd.getty_auto=no systemd.mask=ldconfig.service " +
			"systemd.mask=systemd-modules-load.service"
	}
	cmd := exec.CommandContext(ctx, qemu, "-machine", p.machine, "-accel", "tcg,thread=single", "-cpu", p.cpu,
		"-smp", strconv.Itoa(max(m.CPUs, 1)), "-m", strconv.Itoa(memory),
		"-kernel", m.Kernel, "-initrd", initrd, "-nodefaults", "-no-user-config", "-display", "none", "-serial",
		"stdio", "-no-reboot",
		"-append", "console="+p.console+" quiet panic=-1 no_timer_check rdinit=/init mitigations=off "+cmdline)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	output = strings.ReplaceAll(out.String(), "\r\n", "\n")
	if ctx.Err() != nil {
		return output, fmt.Errorf("virtual machine: %w", ctx.Err())
	}
	if err != nil {
		return output, fmt.Errorf("virtual machine: %w", err)
	}
	_, status, ok := strings.Cut(output, doneMark)
	if !ok {
		return output, errors.New("virtual machine: it stopped before its script ended")
	}
	if status, _, _ = strings.Cut(status, "\n"); status != "0" {
		return output, fmt.Errorf("virtual machine: the script ended with status %s", status)
	}
	return output, nil
}

func (m *Machine) writeInitrd(path, busybox, arch string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	a := &archive{w: z}
	init := "#!/bin/busybox sh\nexport PATH=/bin " + layertest.Variable + "=host\n/bin/busybox --install -s /bin\n"
	if m.Systemd {
		if err := a.systemd(arch, filepath.Dir(path), m.Packages); err != nil {
			return err
		}
		init += "exec /lib/systemd/systemd\n"
	} else {
		a.parents("etc")
		a.add("etc/passwd", 0o100644, []byte("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"))
		init += "mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs -o " +
			"mode=1777 none /tmp\n" +
			"ip link set lo up\n/bin/sh /script\necho \"" + doneMark + "$?\"\npoweroff -f\n"
	}
	for _, d := range []string{"dev", "proc", "sys"} {
		a.add(d, 0o040755, nil)
	}
	a.add("tmp", 0o041777, nil)
	a.file("bin/busybox", busybox)
	a.add("init", 0o100755, []byte(init))
	a.add("script", 0o100755, []byte(m.Script))
	for _, to := range slices.Sorted(maps.Keys(m.Files)) {
		a.file(strings.TrimPrefix(to, "/"), m.Files[to])
	}
	a.add("TRAILER!!!", 0, nil)
	return errors.Join(a.err, z.Close())
}
