package engine

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json/v1"
)

// account has the token and the CA of the pod's service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// apiServer is where Kubernetes' API is. It never puts the token into an error.
type apiServer struct{ host, port, account string }

// KubernetesError is an error of the API server, or of how a pod is set up to reach it.
type KubernetesError struct {
	Err  error
	Hint string // what to do; may be empty
}

func (e *KubernetesError) Error() string { return "kubernetes: " + e.Err.Error() }

// Unwrap also returns ErrUnreachable: a Watch waits for the API server, whatever it refuses.
func (e *KubernetesError) Unwrap() []error { return []error{ErrUnreachable, e.Err} }

func (a *apiServer) failed(err error) error { return &KubernetesError{Err: err} }

// maxFile limits a file of the service account, in bytes.
const maxFile = 1 << 20

func (a *apiServer) file(name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(a.account, name))
	if err != nil {
		return nil, &KubernetesError{
			err, "give the pod a service account, and do not set automountServiceAccountToken: false",
		}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, a.failed(err)
	}
	return text, nil
}

// client returns a client that trusts only the cluster's CA. It uses no proxy and follows no redirect, since either
// would get the token.
func (a *apiServer) client() (*http.Client, error) {
	text, err := a.file("ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, a.failed(fmt.Errorf("%s has no certificate", filepath.Join(a.account, "ca.crt")))
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSClientConfig:       &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 30 * time.Second,
		},
	}, nil
}

// get requests path. verb is RBAC's name for the request.
func (a *apiServer) get(
	ctx context.Context, client *http.Client, verb, path string, query url.Values,
) (io.ReadCloser, error) {
	at := url.URL{Scheme: "https", Host: net.JoinHostPort(a.host, a.port), Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, a.failed(err)
	}
	token, err := a.file("token") // the kubelet replaces it
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "assay-run")
	res, err := client.Do(req)
	if err != nil {
		var urlError *url.Error
		if errors.As(err, &urlError) {
			err = urlError.Err
		}
		return nil, a.failed(fmt.Errorf("the API server at %s does not answer: %w", at.Host, err))
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer res.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	switch res.StatusCode {
	case http.StatusGone:
		return nil, errGone
	case http.StatusUnauthorized:
		return nil, &KubernetesError{
			errors.New("the API server does not accept the token of the pod's service account (401)"),
			"check that the service account still exists",
		}
	case http.StatusForbidden:
		return nil, &KubernetesError{
			fmt.Errorf("the pod's service account may not %s pods (403): %q", verb, message(said)),
			fmt.Sprintf(
				`bind a role to it with the rule {apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"]}: a ClusterRole, or with --namespace a Role; %q is missing`,
				verb,
			),
		}
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		return nil, a.failed(
			fmt.Errorf("the server at %s answered with a redirect, which assay-run does not follow", at.Host),
		)
	}
	return nil, a.failed(fmt.Errorf("the API server refused to %s pods: %s: %q", verb, res.Status, message(said)))
}

// status returns the error in a Status object of the API server.
func (a *apiServer) status(object []byte) error {
	var s struct {
		Code int `json:"code"`
	}
	_ = json.Unmarshal(object, &s)
	if s.Code == http.StatusGone {
		return errGone
	}
	return a.failed(fmt.Errorf("the API server ended the watch: %d: %q", s.Code, message(object)))
}

// message returns the shortened message of a Status object.
func message(object []byte) string {
	var s struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(object, &s)
	return cmp.Or(s.Message[:min(len(s.Message), 300)], "no message")
}
