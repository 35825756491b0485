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

// Access is how a NATS server is reached.
type Access struct {
	// URL is that of the server, or of several, with commas between. It has no password in it: every process of the
	// machine can read the command line.
	URL string
	// Creds is a file with a NATS user's credentials. TokenFile is one with a password; the user is then the worker's
	// name, or assay-coordinator. Both may be empty.
	Creds, TokenFile string
	// CA is a file with the certificates of those who sign the servers'; empty means the system's. Cert and Key are
	// files with the client's certificate and its key; both are empty for none.
	CA, Cert, Key string
	// Lost and Back are told when the connection is lost and when it is there again, and Denied what the server does
	// not allow. They may be nil.
	Lost   func(error)
	Back   func()
	Denied func(error)
}

// ErrInput is wrapped by errors about files and addresses that cannot be used, whatever the servers do.
var ErrInput = errors.New("NATS cannot be used so")

// Connect connects a worker with the name, whose life tells it from its predecessors and its successors. Without a name
// it connects a coordinator. A connection that is lost later comes back by itself.
// The error wraps ErrInput if trying again is of no use.
func (a *Access) Connect(worker, life string) (*nats.Conn, error) {
	opts, err := a.options(worker, life)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	nc, err := nats.Connect(a.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", a.URL, err)
	}
	return nc, nil
}

func (a *Access) options(worker, life string) ([]nats.Option, error) {
	for u := range strings.SplitSeq(a.URL, ",") {
		if parsed, err := url.Parse(strings.TrimSpace(u)); err != nil {
			return nil, fmt.Errorf("the URL of NATS: %w", err)
		} else if parsed.User != nil {
			return nil, errors.New("the URL of NATS has a password in it, which every process could read: " +
				"put it into a file and name that with --creds or --token-file")
		}
	}
	opts := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond),
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort()}
	user := coordinator
	if worker == "" {
		opts = append(opts, nats.Name(coordinator))
	} else {
		user = worker
		opts = append(opts, nats.Name(worker+"."+life), nats.CustomInboxPrefix(inboxes(worker)+"."+life))
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
		if a.Lost != nil && err != nil {
			a.Lost(err)
		}
	}), nats.ReconnectHandler(func(*nats.Conn) {
		if a.Back != nil {
			a.Back()
		}
	}), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if a.Denied != nil && errors.Is(err, nats.ErrPermissionViolation) {
			a.Denied(err)
		}
	}))
	return opts, nil
}

// tls are the client's settings; nil if none are given.
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
			return nil, fmt.Errorf("%s has no certificate in it", a.CA)
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

// ReadCertificate reads a certificate and its key, which nobody else may read.
func ReadCertificate(cert, key string) (*tls.Certificate, error) {
	if cert == "" || key == "" {
		return nil, errors.New("a certificate takes both its file and that of its key")
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

// leastToken is how short a token may be, in bytes.
const leastToken = 16

// ReadToken reads a file with a token, which nobody else may read.
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
	if len(token) < leastToken {
		return "", fmt.Errorf("the token in %s is shorter than %d characters", file, leastToken)
	}
	return token, nil
}

// private checks that a file with a secret is its owner's alone.
func private(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", file)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be read by others (mode %04o): chmod 600 %[1]s", file, info.Mode().Perm())
	}
	return nil
}
