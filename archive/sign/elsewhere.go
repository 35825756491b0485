package sign

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// signTime limits how long an ssh-agent or a command may take. A person may have to touch a token or confirm.
const signTime = 2 * time.Minute

// Agent returns a signer with an ed25519 key of the ssh-agent at socket: the key with the given fingerprint
// ("SHA256:..."), or the only key if fingerprint is empty. The agent makes each signature.
func Agent(socket, fingerprint string) (Signer, error) {
	if socket == "" {
		return nil, fmt.Errorf("%w: SSH_AUTH_SOCK is not set: start an ssh-agent and add the key with ssh-add", errKey)
	}
	s := &agentSigner{socket: socket}
	err := s.ask(context.Background(), func(a agent.Agent) error {
		held, err := a.List()
		if err != nil {
			return err
		}
		var fit []ssh.PublicKey
		for _, k := range held {
			key, err := ssh.ParsePublicKey(k.Blob)
			if err == nil && key.Type() == ssh.KeyAlgoED25519 &&
				(fingerprint == "" || ssh.FingerprintSHA256(key) == fingerprint) {
				fit = append(fit, key)
			}
		}
		switch {
		case len(fit) == 1:
			s.key = fit[0]
			return nil
		case len(fit) == 0 && fingerprint != "":
			return fmt.Errorf("no ed25519 key %s: see ssh-add -l", fingerprint)
		case len(fit) == 0:
			return errors.New("no ed25519 key: add one with ssh-add")
		}
		return fmt.Errorf("%d ed25519 keys: choose one with agent:FINGERPRINT, see ssh-add -l", len(fit))
	})
	if err != nil {
		return nil, fmt.Errorf("%w: the ssh-agent at %s: %w", errKey, socket, err)
	}
	return s, nil
}

type agentSigner struct {
	socket string
	key    ssh.PublicKey
}

func (s *agentSigner) ask(ctx context.Context, question func(agent.Agent) error) error {
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	return question(agent.NewClient(conn))
}

func (s *agentSigner) Sign(ctx context.Context, data []byte) (signature []byte, err error) {
	err = s.ask(ctx, func(a agent.Agent) error {
		made, err := a.Sign(s.key, data)
		if err != nil {
			return err
		}
		if err := s.key.Verify(data, made); err != nil {
			return fmt.Errorf("its signature does not verify: %w", err)
		}
		signature = made.Blob
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the ssh-agent at %s: %w", s.socket, err)
	}
	return signature, nil
}

func (s *agentSigner) KeyID() (string, error) { return ssh.FingerprintSHA256(s.key), nil }

// Command returns a signer that runs a shell command. The command gets the bytes to sign on its standard input, and
// prints an ed25519 signature of them as 64 raw bytes or as base64. It shares this process's standard error.
func Command(command string) Signer { return commandSigner(command) }

type commandSigner string

func (c commandSigner) Sign(ctx context.Context, data []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", string(c))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(data), os.Stderr
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("no signature within %v", signTime)
	}
	if err != nil {
		return nil, fmt.Errorf("signing command %q: %w", string(c), err)
	}
	if len(out) == ed25519.SignatureSize {
		return out, nil
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(out)))
	if err != nil || len(signature) != ed25519.SignatureSize {
		return nil, fmt.Errorf("signing command %q printed %d bytes, which are not an ed25519 signature (64 "+
			"bytes, raw or base64)", string(c), len(out))
	}
	return signature, nil
}

func (c commandSigner) KeyID() (string, error) {
	return "", errors.New("a signing command does not name its key")
}
