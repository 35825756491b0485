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

// startTime limits how long a server may take to start.
const startTime = 30 * time.Second

// Server is a NATS server in this process. It keeps work and results in memory, and bundles and workspaces on disk.
type Server struct {
	server *server.Server
	dir    string
	secret string // the coordinator's password; empty if the server does not listen
}

// ListenConfig says how a server listens for workers. With the zero value it does not: only this process can connect.
type ListenConfig struct {
	// Address is HOST:PORT; empty means not to listen. With the port 0 the system chooses one.
	Address string
	// TLS is the server's configuration. It may be nil only on a loopback address.
	TLS *tls.Config
	// Token is the password of the workers. It may be empty only on a loopback address.
	Token string
}

// check splits the address, and checks that it is a loopback address or TLS and a token protect it.
func (c *ListenConfig) check() (host string, port int, err error) {
	host, number, err := net.SplitHostPort(c.Address)
	if err == nil {
		port, err = strconv.Atoi(number)
	}
	if err != nil {
		return "", 0, fmt.Errorf("%w: cannot listen on %q: want HOST:PORT", ErrInput, c.Address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) &&
		(c.TLS == nil || c.Token == "") {
		return "", 0, fmt.Errorf("%w: cannot listen on %s: an address that other machines reach needs "+
			"--tls-cert, --tls-key and --token-file", ErrInput, c.Address)
	}
	return host, port, nil
}

// Serve starts a server that keeps its files in dir, which no other process may use. It first removes what is there.
func Serve(dir string, listen ListenConfig) (*Server, error) {
	s := &Server{dir: dir}
	options := &server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		MaxPayload: maxMessage, JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 40}
	if listen.Address != "" {
		host, port, err := listen.check()
		if err != nil {
			return nil, err
		}
		if port == 0 {
			port = server.RANDOM_PORT
		}
		s.secret = rand.Text()
		options.DontListen, options.Host, options.Port = false, host, port
		options.CustomClientAuthentication = &authenticator{secret: s.secret, token: listen.Token}
		if options.TLSConfig = listen.TLS; listen.TLS != nil {
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
		return nil, errors.Join(fmt.Errorf("the NATS server in this process did not start within %v", startTime),
			s.Close())
	}
	return s, nil
}

// Address is where the server listens; empty if it does not.
func (s *Server) Address() string {
	if s.secret == "" {
		return ""
	}
	return s.server.Addr().String()
}

// Connect connects the coordinator to the server, without a socket.
func (s *Server) Connect() (*nats.Conn, error) {
	return nats.Connect("", nats.InProcessServer(s.server), nats.Name(coordinator), nats.MaxReconnects(-1),
		nats.UserInfo(coordinator, s.secret))
}

// Close stops the server and removes its directory.
func (s *Server) Close() error {
	s.server.Shutdown()
	s.server.WaitForShutdown()
	return os.RemoveAll(s.dir)
}

// authenticator gives the coordinator all rights, and clients with the token those of a worker.
type authenticator struct{ secret, token string }

// Check is called by the server for each connection. A worker's user is its name, and its connection has the name
// WORKER.INSTANCE. A worker that claims another one's name does not know its instance, so it cannot read the answers to
// it.
func (g *authenticator) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	same := func(want string) bool { return subtle.ConstantTimeCompare([]byte(given.Password), []byte(want)) == 1 }
	if given.Username == coordinator {
		return same(g.secret)
	}
	worker, instance, _ := strings.Cut(given.Name, ".")
	if worker != given.Username || !isName(worker) || !isName(instance) || !same(g.token) {
		return false
	}
	c.RegisterUser(&server.User{Username: worker, Permissions: Rights(worker, instance)})
	return true
}
