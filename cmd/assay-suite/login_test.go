//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/schema"
)

// authority is a certificate authority.
type authority struct {
	*site
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority creates an authority, and its own certificate with sign.
func newAuthority(s *site, name, address string) *authority {
	s.Helper()
	a := &authority{site: s}
	a.cert, a.key = a.sign(name, address)
	return a
}

// sign writes a certificate for clients, and for the server at the address, to NAME.pem, and its key to
// NAME.key. The first certificate is the authority's own.
func (a *authority) sign(name, address string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: a.cert == nil, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.ParseIP(address)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	a.file(name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	a.file(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	if c, err = x509.ParseCertificate(der); err != nil {
		a.Fatal(err)
	}
	return c, key
}

// operator is a NATS operator with an account for suites.
type operator struct {
	*site
	key, account  nkeys.KeyPair
	token, system string // the operator's JWT, and the id of its system account
	accounts      map[string]string
}

func newOperator(s *site) *operator {
	s.Helper()
	o := &operator{site: s, accounts: map[string]string{}}
	var system nkeys.KeyPair
	for _, k := range []struct {
		to   *nkeys.KeyPair
		make func() (nkeys.KeyPair, error)
	}{{&o.key, nkeys.CreateOperator}, {&o.account, nkeys.CreateAccount}, {&system, nkeys.CreateAccount}} {
		var err error
		if *k.to, err = k.make(); err != nil {
			s.Fatal(err)
		}
	}
	o.system = o.public(system)
	claims := jwt.NewOperatorClaims(o.public(o.key))
	claims.SystemAccount = o.system
	o.token = o.encode(claims, o.key)
	suites := jwt.NewAccountClaims(o.public(o.account))
	suites.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	o.accounts[o.public(o.account)] = o.encode(suites, o.key)
	o.accounts[o.system] = o.encode(jwt.NewAccountClaims(o.system), o.key)
	return o
}

func (o *operator) public(k nkeys.KeyPair) string {
	o.Helper()
	id, err := k.PublicKey()
	if err != nil {
		o.Fatal(err)
	}
	return id
}

func (o *operator) encode(c jwt.Claims, by nkeys.KeyPair) string {
	o.Helper()
	token, err := c.Encode(by)
	if err != nil {
		o.Fatal(err)
	}
	return token
}

// user writes the credentials of a user to NAME.creds, signed by the account. Without rights the user may do
// everything.
func (o *operator) user(name string, by nkeys.KeyPair, publish, subscribe []string) {
	o.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		o.Fatal(err)
	}
	claims := jwt.NewUserClaims(o.public(key))
	claims.Name, claims.Pub.Allow, claims.Sub.Allow = name, publish, subscribe
	seed, err := key.Seed()
	if err != nil {
		o.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(o.encode(claims, by), seed)
	if err != nil {
		o.Fatal(err)
	}
	o.file(name+".creds", string(creds))
}

// TestCredentialsAndCertificatesOfClients runs a suite over a server that requires credentials of its operator and
// certificates of one authority. It must reject clients that lack either.
func TestCredentialsAndCertificatesOfClients(t *testing.T) {
	s := newSite(t, `name: login
attempts: 2
tasks: [{name: t, command: "true"}]
agents: [{name: a, command: touch it}, {name: reads, command: cat "$HOME/w1.creds" "$HOME/client.key"}]
`)
	ca := newAuthority(s, "ca", "127.0.0.1")
	ca.sign("server", "127.0.0.1")
	ca.sign("client", "127.0.0.1")
	newAuthority(s, "other", "127.0.0.1")
	o := newOperator(s)
	o.user("coordinator", o.account, nil, nil)
	rights := carrier.Rights("w1", "")
	o.user("w1", o.account, rights.Publish.Allow, rights.Subscribe.Allow)
	stranger, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	o.user("stranger", stranger, nil, nil)
	preload := ""
	for id, token := range o.accounts {
		preload += fmt.Sprintf("  %s: %s\n", id, token)
	}
	port := ports(t, 1)[0]
	in := func(name string) string { return filepath.Join(s.dir, name) }
	s.process("nats-node", s.file("nats.conf", fmt.Sprintf(`listen: "127.0.0.1:%s"
server_name: n0
jetstream { store_dir: %q }
tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }
operator: %s
resolver: MEMORY
system_account: %s
resolver_preload: {
%s}
`, port, in("nats"), in("server.pem"), in("server.key"), in("ca.pem"), o.token, o.system, preload)))
	url := "tls://127.0.0.1:" + port
	secure := []string{"--tls-ca", "ca.pem", "--tls-cert", "client.pem", "--tls-key", "client.key"}

	coordinator := s.run(append(secure, "--jobs", "0", "--nats", url, "--creds", "coordinator.creds")...)
	coordinator.said.await(t, "keeps each message 1 time") // the server is ready
	for what, flags := range map[string][]string{
		"the credentials of another account": append(secure, "--creds", "stranger.creds"),
		"no credentials":                     secure,
		"no certificate":                     {"--tls-ca", "ca.pem", "--creds", "w1.creds"},
		"a certificate of another authority": {"--tls-ca", "ca.pem", "--tls-cert", "other.pem", "--tls-key",
			"other.key", "--creds", "w1.creds"},
		"another authority for the server": {"--tls-ca", "other.pem", "--tls-cert", "client.pem", "--tls-key",
			"client.key", "--creds", "w1.creds"},
	} {
		w := s.worker("refused", url, flags...)
		want := "trying again every"
		if strings.Contains(what, "credentials") {
			want = "rejects this user"
		}
		w.said.await(t, want)
		w.kill()
		if strings.Contains(w.said.String(), "joined the suite") {
			t.Errorf("who has %s is let in", what)
		}
	}
	w := s.worker("w1", url, append(secure, "--creds", "w1.creds")...)
	if err := coordinator.cmd.Wait(); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	s.passed(4)
	for _, a := range results(t, s.dir).Attempts {
		reads := slices.ContainsFunc(a.Suspicions, func(f schema.Finding) bool { return f.Rule == "reads_hidden" })
		if kernel := a.Tries[0].KernelState != "absent"; reads != (a.Agent == "reads" && kernel) {
			t.Errorf("the suspicions of %s are %+v", a.ID, a.Suspicions)
		}
	}
	w.end()
	if strings.Contains(w.said.String(), "ermissions violation") {
		t.Errorf("the documented rights are too few")
	}
	s.clean("w1")
}
