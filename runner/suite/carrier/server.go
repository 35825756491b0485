//go:build linux

package carrier

import (
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startTime bounds how long the server of this process may take to start.
const startTime = 30 * time.Second

// Server is a NATS server in this process, which keeps everything in memory but bundles.
type Server struct {
	server *server.Server
	dir    string
	secret string // the coordinator's password; empty if the server does not listen
}

// Opening opens a server to workers. The zero value opens it to nobody.
type Opening struct {
	// Address is HOST:PORT, and empty for no port.
	Address string
	// TLS is the server's; nil is allowed on a loopback address alone.
	TLS *tls.Config
	// Token is the password of the workers. It may be empty on a loopback address alone.
	Token string
}

// check checks what the server may listen on.
func (o *Opening) check() (host string, port int, err error) {
	host, number, err := net.SplitHostPort(o.Address)
	if err == nil {
		port, err = strconv.Atoi(number)
	}
	if err != nil {
		return "", 0, fmt.Errorf("%w: listen on %q: want HOST:PORT", ErrInput, o.Address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) &&
		(o.TLS == nil || o.Token == "") {
		return "", 0, fmt.Errorf("%w: listen on %s: beyond this machine that takes --tls-cert, --tls-key and "+
			"--token-file", ErrInput, o.Address)
	}
	return host, port, nil
}

// Serve starts a server whose scratch directory is dir. What another one left there is removed: nobody may use dir at
// the same time.
func Serve(dir string, open Opening) (*Server, error) {
	s := &Server{dir: dir}
	options := &server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		MaxPayload: maxMessage, JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 40}
	if open.Address != "" {
		host, port, err := open.check()
		if err != nil {
			return nil, err
		}
		if port == 0 {
			port = server.RANDOM_PORT
		}
		s.secret = rand.Text()
		options.DontListen, options.Host, options.Port = false, host, port
		options.CustomClientAuthentication = &guard{secret: s.secret, token: open.Token}
		if options.TLSConfig = open.TLS; open.TLS != nil {
			options.TLS, options.TLSTimeout = true, 10
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ns, err := server.NewServer(options)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.server = ns
	ns.Start()
	if !ns.ReadyForConnections(startTime) {
		return nil, errors.Join(fmt.Errorf("the NATS server in this process did not start %s", open.Address), s.Close())
	}
	return s, nil
}

// Address is where the server listens.
func (s *Server) Address() string {
	if s.secret == "" {
		return ""
	}
	return s.server.Addr().String()
}

// Connect connects the coordinator to the server within this process.
func (s *Server) Connect() (*nats.Conn, error) {
	return nats.Connect("", nats.InProcessServer(s.server), nats.Name(coordinator), nats.MaxReconnects(-1),
		nats.UserInfo(coordinator, s.secret))
}

// Close ends the server and removes what it kept.
func (s *Server) Close() error {
	s.server.Shutdown()
	s.server.WaitForShutdown()
	return os.RemoveAll(s.dir)
}

// guard lets the coordinator do everything, and whoever has the token what a worker may.
type guard struct{ secret, token string }

// Check is called by the server for each connection. A worker's user is its name, and its connection has the name
// WORKER.LIFE: a worker with the token, but without the other's life, cannot listen to the answers that the other gets.
func (g *guard) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	same := func(want string) bool { return subtle.ConstantTimeCompare([]byte(given.Password), []byte(want)) == 1 }
	if given.Username == coordinator {
		return same(g.secret)
	}
	worker, life, _ := strings.Cut(given.Name, ".")
	if worker != given.Username || !isName(worker) || !isName(life) || !same(g.token) {
		return false
	}
	c.RegisterUser(&server.User{Username: worker, Permissions: Rights(worker, life)})
	return true
}
