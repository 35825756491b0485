package sandbox

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// outside is what exists before a sandbox: sockets in a network namespace with a metadata service and a resolver.
type outside struct {
	netns     int
	dir, loop string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a network for the sandbox to be in")
	}
	o := &outside{dir: scratch(t)}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		var err error
		if o.netns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		for name, addr := range map[string][]byte{"lo": {127, 0, 0, 1}, "lo:1": {169, 254, 169, 254},
			"lo:2": {192, 0, 2, 1}} {
			if err := address(name, addr); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		for _, at := range [][2]string{{"unix", o.dir + "/sock"}, {"unix", "@" + filepath.Base(o.dir)},
			{"tcp", "127.0.0.1:0"}, {"tcp", "169.254.169.254:80"}} {
			l, err := net.Listen(at[0], at[1])
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			if at[1] == "127.0.0.1:0" {
				o.loop = l.Addr().String()
			}
		}
		resolver, err := net.ListenPacket("udp", "192.0.2.1:53")
		if err != nil {
			return err
		}
		t.Cleanup(func() { resolver.Close() })
		go func() {
			for buf := make([]byte, 64); ; {
				n, from, err := resolver.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = resolver.WriteTo(buf[:n], from)
			}
		}()
		return os.Chmod(o.dir+"/sock", 0o777)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(o.netns) })
	return o
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// address gives a device of this thread's network an address, and brings it up.
func address(device string, addr []byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	if err := ifr.SetInet4Addr(addr); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, ifr); err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// TestWhatIsOutside tests processes and sockets that exist before the sandbox. Without the layers that stop it, each
// attack succeeds.
func TestWhatIsOutside(t *testing.T) {
	o := newOutside(t)
	network := []string{LayerNetwork}
	processes := []string{LayerNamespaces, LayerFiles, LayerLandlock, LayerSeccomp, LayerPrivileges}
	for _, c := range []struct {
		name, args string
		mounts     bool // and network namespaces
		without    []string
		network    *sandboxfile.Network
	}{
		{"a unix socket with a path", "unix " + o.dir + "/sock", true, []string{LayerFiles, LayerSockets}, nil},
		{"an abstract socket", "abstract " + filepath.Base(o.dir), false,
			[]string{LayerLandlock, LayerNetwork, LayerSockets}, nil},
		{"the host's loopback", "tcp " + o.loop, true, network, nil},
		{"a metadata service", "tcp 169.254.169.254:80", true, network, nil},
		{"an IPv6-mapped address", "tcp [::ffff:169.254.169.254]:80", true, network, nil},
		{"UDP", "udp 192.0.2.1:53", true, network, nil},
		{"a question to a resolver", "dns 192.0.2.1:53", true, network, nil},
		{"a question to a resolver past the proxy", "dns 192.0.2.1:53", true, network,
			&sandboxfile.Network{AllowedDomains: []string{"*.example.org"}}},
		{"ptrace of another", "ptrace $VICTIM", false, processes, nil},
		{"another's memory", "mem $VICTIM", false, processes, nil},
		{"a signal to another", "kill $VICTIM", false, processes, nil},
	} {
		try := func(t *testing.T, w who, without []string) *outcome {
			t.Helper()
			victim := exec.Command("sleep", "60")
			victim.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid),
				Gid: uint32(w.uid)}}
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { victim.Process.Kill(); victim.Wait() }()
			j := shell(t, `"$ATTACK" `+c.args)
			j.Env = []string{"ATTACK=" + attack(t, filepath.Dir(j.Dir)), fmt.Sprintf("VICTIM=%d", victim.Process.Pid)}
			j.Settings.Network = c.network
			if w.noUserns {
				j.Settings.OnUnavailable = sandboxfile.Degrade
			}
			j.Without, j.netns = without, o.netns
			return w.run(t, j)
		}
		for _, w := range everybody {
			if c.mounts && w.noUserns {
				continue
			}
			t.Run(c.name+"/"+w.name, func(t *testing.T) {
				if o := try(t, w, nil); o.Err != "" || o.Code == 0 {
					t.Errorf("got out: %+v\n%s", o, o.out)
				}
			})
		}
		t.Run(c.name+"/gets through without "+strings.Join(c.without, " and "), func(t *testing.T) {
			if o := try(t, everybody[0], c.without); o.Err != "" || o.Code != 0 {
				t.Errorf("is stopped by something else: %+v\n%s", o, o.out)
			}
		})
	}
}

// TestSocketsAlone tests sockets of processes outside with no other layer that stops it. The denial is told.
func TestSocketsAlone(t *testing.T) {
	o := newOutside(t)
	for _, c := range []struct {
		how, name string
		without   []string
	}{
		{"unix", o.dir + "/sock", []string{LayerFiles}},
		{"abstract", filepath.Base(o.dir), []string{LayerLandlock, LayerNetwork}},
	} {
		for _, w := range everybody[:2] {
			t.Run(c.how+"/"+w.name, func(t *testing.T) {
				j := shell(t, fmt.Sprintf(`"$ATTACK" %s %s`, c.how, c.name))
				j.Env = []string{"ATTACK=" + attack(t, filepath.Dir(j.Dir))}
				j.Without, j.netns = c.without, o.netns
				name := c.name
				if c.how == "abstract" {
					name = "@" + name
				}
				got := w.run(t, j)
				if got.Err != "" || got.Code == 0 || len(got.Blocked) != 1 || got.Blocked[0] != OpConnect+" "+name {
					t.Errorf("%+v\n%s", got, got.out)
				}
			})
		}
	}
}
