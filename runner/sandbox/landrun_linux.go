package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// Landrun restricts by Landlock alone, like the program landrun: what is not listed is denied.
type Landrun struct {
	// RO paths can be read, ROX also executed, RW also written, RWX all three.
	RO, ROX, RW, RWX []string
	// BindTCP and ConnectTCP are the allowed ports.
	BindTCP, ConnectTCP []int
	// BestEffort accepts what the kernel's Landlock can restrict. Otherwise a missing feature is an error.
	BestEffort bool
	// IgnoreMissing skips paths that do not exist.
	IgnoreMissing bool
	// UnrestrictedFilesystem, UnrestrictedNetwork and UnrestrictedScoped do not restrict files, ports, and abstract
	// sockets and signals.
	UnrestrictedFilesystem, UnrestrictedNetwork, UnrestrictedScoped bool
	// By default, the host's audit logs what Landlock refuses to the program itself, and not to what it starts.
	// QuietOriginating turns off the first, LogSubprocesses turns on the second, and QuietSubdomains turns off what
	// the program's own Landlock domains refuse.
	QuietOriginating, LogSubprocesses, QuietSubdomains bool
}

// asks is the first version of Landlock that can restrict everything that l restricts.
func (l *Landrun) asks() int {
	switch {
	case !l.UnrestrictedScoped:
		return 6
	case !l.UnrestrictedFilesystem:
		return 5
	case !l.UnrestrictedNetwork:
		return 4
	}
	return 1
}

// Exec restricts the calling process and executes a program in its place. It returns only on error.
func (l *Landrun) Exec(path string, args, env []string) error {
	r, err := l.ruleset()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if r != nil {
		if err := shim.Restrict(r); err != nil {
			return err
		}
	}
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, args, env))
}

func (l *Landrun) ruleset() (*shim.Ruleset, error) {
	if l.UnrestrictedFilesystem && l.UnrestrictedNetwork && l.UnrestrictedScoped {
		return nil, nil
	}
	abi, err := LandlockABI()
	switch {
	case err != nil && l.BestEffort:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("landlock is not available: %w", err)
	case abi < l.asks() && !l.BestEffort:
		return nil, fmt.Errorf("this kernel's Landlock cannot restrict %s; use --best-effort to run without that",
			lacking(abi))
	}
	files, network, scoped := handled(abi)
	r := &shim.Ruleset{Log: l.logs()}
	switch {
	case r.Log == 0 || abi >= logABI:
	case l.BestEffort:
		r.Log = 0
	default:
		return nil, errors.New("this kernel's Landlock logs nothing, so what it logs cannot be chosen; use " +
			"--best-effort to run without that")
	}
	if !l.UnrestrictedScoped {
		r.Scoped = scoped
	}
	if !l.UnrestrictedFilesystem {
		r.FS = files
		if err := l.paths(r, files); err != nil {
			return nil, err
		}
	}
	if !l.UnrestrictedNetwork && network != 0 {
		r.Net = network
		for _, p := range []struct {
			ports  []int
			access uint64
		}{{l.BindTCP, unix.LANDLOCK_ACCESS_NET_BIND_TCP}, {l.ConnectTCP, unix.LANDLOCK_ACCESS_NET_CONNECT_TCP}} {
			for _, port := range p.ports {
				if port < 0 || port > 65535 {
					return nil, fmt.Errorf("%d is not a port", port)
				}
				r.Ports = append(r.Ports, shim.PortRule{Port: uint16(port), Access: p.access})
			}
		}
	}
	return r, nil
}

// logs are the flags of landlock_restrict_self for logging.
func (l *Landrun) logs() (flags int) {
	if l.QuietOriginating {
		flags |= unix.LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF
	}
	if l.LogSubprocesses {
		flags |= unix.LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON
	}
	if l.QuietSubdomains {
		flags |= unix.LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF
	}
	return flags
}

func (l *Landrun) paths(r *shim.Ruleset, files uint64) error {
	const execute = unix.LANDLOCK_ACCESS_FS_EXECUTE
	for _, list := range []struct {
		paths  []string
		access uint64
	}{{l.RO, accessRead &^ execute}, {l.ROX, accessRead}, {l.RW, accessAll &^ execute}, {l.RWX, accessAll}} {
		for _, path := range list.paths {
			if _, err := os.Stat(path); err != nil {
				if l.IgnoreMissing && errors.Is(err, os.ErrNotExist) {
					continue
				}
				return err
			}
			r.Paths = append(r.Paths, shim.PathRule{Path: path, Access: list.access & files})
		}
	}
	return nil
}
