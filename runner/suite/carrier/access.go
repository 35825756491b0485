//go:build linux

package carrier

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Access says which NATS servers to connect to, and how to log in.
type Access struct {
	// URL names one server, or several separated by commas. A password in it is an error, since every process of the
	// machine can read the command line.
	URL string
	// Creds is a file with the credentials of a NATS user. TokenFile is a file with a password, for the user with the
	// worker's name or assay-coordinator; it is ignored if Creds is set. Both may be empty.
	Creds, TokenFile string
	// CA is a file with the certificates that sign those of the servers; empty means the system's. Cert and Key are
	// files with the client's certificate and its key; both are empty for none.
	CA, Cert, Key string
	// OnLost is called when the connection is lost, OnBack when it is back, and OnDenied when the server denies an
	// operation. Each may be nil.
	OnLost   func(error)
	OnBack   func()
	OnDenied func(error)
}

// ErrInput is wrapped by errors about wrong files, addresses and URLs: trying again does not help.
var ErrInput = errors.New("bad NATS settings")

// Connect connects the worker with the given name, or a coordinator if it is empty. instance tells this process of the
// worker from others with the same name. A connection that is lost later is restored automatically. The error wraps
// ErrInput if trying again does not help.
func (a *Access) Connect(worker, instance string) (*nats.Conn, error) {
	opts, err := a.options(worker, instance)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	nc, err := nats.Connect(a.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", a.URL, err)
	}
	return nc, nil
}

func (a *Access) options(worker, instance string) ([]nats.Option, error) {
	for u := range strings.SplitSeq(a.URL, ",") {
		if parsed, err := url.Parse(strings.TrimSpace(u)); err != nil {
			return nil, fmt.Errorf("parse the URL: %w", err)
		} else if parsed.User != nil {
			return nil, errors.New("the URL contains a password, which every process could read; put it into a file " +
				"and name that with --creds or --token-file")
		}
	}
	opts := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond),
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort()}
	user := coordinator
	if worker == "" {
		opts = append(opts, nats.Name(coordinator))
	} else {
		user = worker
		opts = append(opts, nats.Name(worker+"."+instance), nats.CustomInboxPrefix(inboxes(worker)+"."+instance))
	}
	if a.Creds != "" {
		if err := private(a.Creds); err != nil {
			return nil, err
		}
		opts = append(opts, nats.UserCredentials(a.Creds))
	}
	if a.Creds == "" {
		token := ""
		if a.TokenFile != "" {
			var err error
			if token, err = ReadToken(a.TokenFile); err != nil {
				return nil, err
			}
		}
		opts = append(opts, nats.UserInfo(user, token))
	}
	secure, err := a.tls()
	if err != nil {
		return nil, err
	}
	if secure != nil {
		opts = append(opts, nats.Secure(secure))
	}
	opts = append(opts, nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
		if a.OnLost != nil && err != nil {
			a.OnLost(err)
		}
	}), nats.ReconnectHandler(func(*nats.Conn) {
		if a.OnBack != nil {
			a.OnBack()
		}
	}), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if a.OnDenied != nil && errors.Is(err, nats.ErrPermissionViolation) {
			a.OnDenied(err)
		}
	}))
	return opts, nil
}

// tls is the client's TLS configuration; nil means the default.
func (a *Access) tls() (*tls.Config, error) {
	if a.CA == "" && a.Cert == "" && a.Key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CA != "" {
		pem, err := os.ReadFile(a.CA)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s contains no certificate", a.CA)
		}
	}
	if a.Cert != "" || a.Key != "" {
		pair, err := ReadCertificate(a.Cert, a.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{*pair}
	}
	return c, nil
}

// ReadCertificate reads a certificate and its key. It is an error if other users can read the key.
func ReadCertificate(cert, key string) (*tls.Certificate, error) {
	if cert == "" || key == "" {
		return nil, errors.New("a certificate needs two files: --tls-cert and --tls-key")
	}
	if err := private(key); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s: %w", cert, err)
	}
	return &pair, nil
}

// minToken is the shortest token that is accepted, in bytes.
const minToken = 16

// ReadToken reads a file with a token. It is an error if other users can read it.
func ReadToken(file string) (string, error) {
	if err := private(file); err != nil {
		return "", err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken {
		return "", fmt.Errorf("the token in %s is shorter than %d characters", file, minToken)
	}
	return token, nil
}

// private checks that only the owner of a file with a secret can read it.
func private(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", file)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("other users can read %s (mode %04o): run chmod 600 %[1]s", file, info.Mode().Perm())
	}
	return nil
}
