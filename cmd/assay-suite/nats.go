//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/carrier"
)

// natsFlags say which NATS servers to use and how to log in.
type natsFlags struct{ url, creds, token, ca, cert, key string }

func (n *natsFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&n.url, "nats", "", "use the NATS servers at `URL`: nats://HOST:PORT or tls://HOST:PORT, separated "+
		"by commas")
	fs.StringVar(&n.creds, "creds", "", "log in to NATS with the credentials in `FILE` (mode 0600)")
	fs.StringVar(&n.token, "token-file", "", "log in to NATS with the token in `FILE` (mode 0600)")
	fs.StringVar(&n.ca, "tls-ca", "", "trust servers whose certificates are signed by those in `FILE` (default the "+
		"system's)")
	fs.StringVar(&n.cert, "tls-cert", "", "identify with the certificate in `FILE`")
	fs.StringVar(&n.key, "tls-key", "", "read the key of --tls-cert from `FILE` (mode 0600)")
}

// access connects to NATS by the flags. It reports a lost connection, and what the server denies, to the user.
func (n *natsFlags) access(a *app) *carrier.Access {
	return &carrier.Access{URL: n.url, Creds: n.creds, TokenFile: n.token, CA: n.ca, Cert: n.cert, Key: n.key,
		OnLost:   func(err error) { a.say.Info("lost the connection to NATS (%v); trying to reconnect", err) },
		OnBack:   func() { a.say.Info("connected to NATS again") },
		OnDenied: a.warnOnce("NATS denied an operation (%v): check the rights of the user")}
}

// secrets are the files with credentials, by the real paths that the kernel records. No agent has a reason to read one.
func (n *natsFlags) secrets() (files []string, err error) {
	for _, f := range []string{n.creds, n.token, n.key} {
		if f == "" {
			continue
		}
		if f, err = suite.RealPath(f); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// listen says how the server of this process listens for workers at an address; an empty one means not at all.
func (n *natsFlags) listen(address string) (c carrier.ListenConfig, err error) {
	c.Address = address
	if n.token != "" {
		if c.Token, err = carrier.ReadToken(n.token); err != nil {
			return c, fmt.Errorf("%w: %w", carrier.ErrInput, err)
		}
	}
	if n.cert != "" || n.key != "" {
		pair, err := carrier.ReadCertificate(n.cert, n.key)
		if err != nil {
			return c, fmt.Errorf("%w: %w", carrier.ErrInput, err)
		}
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}}
	}
	return c, nil
}

// warnOnce returns a function that prints a warning about an error, unless the error is the same as the one before.
func (a *app) warnOnce(format string) func(error) {
	var mu sync.Mutex
	last := ""
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if text := err.Error(); text != last {
			last = text
			a.say.Warning(format, err)
		}
	}
}

// natsFailed is the warning about a failed operation.
const natsFailed = "NATS failed (%v); trying again"

// hideMemory keeps agents that run as the same user from reading this process's memory: it holds credentials of NATS.
func hideMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide this process's memory from other processes: %w", err)
	}
	return nil
}
