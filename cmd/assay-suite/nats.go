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

// natsFlags say how NATS is reached.
type natsFlags struct{ url, creds, token, ca, cert, key string }

func (n *natsFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&n.url, "nats", "", "use the NATS servers at `URL`: nats://HOST:PORT or tls://HOST:PORT, several "+
		"with commas between")
	fs.StringVar(&n.creds, "creds", "", "log in to NATS with the credentials in `FILE` (mode 0600)")
	fs.StringVar(&n.token, "token-file", "", "log in to NATS with the token in `FILE` (mode 0600)")
	fs.StringVar(&n.ca, "tls-ca", "", "trust servers whose certificates those in `FILE` sign (default the system's)")
	fs.StringVar(&n.cert, "tls-cert", "", "show the certificate in `FILE`")
	fs.StringVar(&n.key, "tls-key", "", "the key of --tls-cert is in `FILE` (mode 0600)")
}

// access is how NATS is reached. Losses are told once.
func (n *natsFlags) access(a *app) *carrier.Access {
	told := a.once()
	return &carrier.Access{URL: n.url, Creds: n.creds, TokenFile: n.token, CA: n.ca, Cert: n.cert, Key: n.key,
		Lost: func(err error) { a.say.Info("the connection to NATS is lost (%v): trying again", err) },
		Back: func() { a.say.Info("connected to NATS again") }, Denied: told}
}

// secrets are the files that no agent has a reason to read, as the kernel names them.
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

// opening opens a server at the address to workers.
func (n *natsFlags) opening(address string) (o carrier.Opening, err error) {
	o.Address = address
	if n.token != "" {
		if o.Token, err = carrier.ReadToken(n.token); err != nil {
			return o, fmt.Errorf("%w: %w", carrier.ErrInput, err)
		}
	}
	if n.cert != "" || n.key != "" {
		pair, err := carrier.ReadCertificate(n.cert, n.key)
		if err != nil {
			return o, fmt.Errorf("%w: %w", carrier.ErrInput, err)
		}
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}}
	}
	return o, nil
}

// once says an error, unless it is the one that it said last.
func (a *app) once() func(error) {
	var mu sync.Mutex
	last := ""
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if text := err.Error(); text != last {
			last = text
			a.say.Warning("%s", text)
		}
	}
}

// hide keeps this process's memory, which has secrets of NATS in it, from agents that run as the same user.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep this process's memory from others: %w", err)
	}
	return nil
}
