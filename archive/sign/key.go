package sign

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/crypto/ssh"
)

// Signer makes signatures. Sign returns the 64 bytes of an ed25519 signature. KeyID returns the key's OpenSSH
// fingerprint ("SHA256:..."), or an error if the signer does not know it.
type Signer = dsse.Signer

var errKey = errors.New("unusable key")

// maxKeyFile limits a file of keys, in bytes. Allowed-signers files of large organisations are much smaller.
const maxKeyFile = 1 << 20

// LoadKey reads an ed25519 private key, in PKCS#8 with PEM or in OpenSSH's format. It refuses a file that others can
// read, an encrypted key, and other types of keys. The key stays in memory.
func LoadKey(path string) (Signer, error) {
	data, info, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	if publicKeyText(data) {
		return nil, fmt.Errorf("%w: %s holds a public key: name the file of the private key", errKey, path)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s has mode %04o, so other users can read it: run chmod 600 on it, and replace "+
			"the key if others had access", errKey, path, info.Mode().Perm())
	}
	raw, err := ssh.ParseRawPrivateKey(data)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked), encryptedPKCS8(data):
		return nil, fmt.Errorf("%w: %s is encrypted: load it into an ssh-agent with ssh-add and sign with \"agent\"",
			errKey, path)
	case err != nil:
		return nil, fmt.Errorf("%w: %s is neither a PKCS#8 nor an OpenSSH private key: %v", errKey, path, err)
	}
	var private ed25519.PrivateKey
	switch key := raw.(type) {
	case ed25519.PrivateKey:
		private = key
	case *ed25519.PrivateKey:
		private = *key
	default:
		return nil, fmt.Errorf("%w: %s is a key of type %T, and only ed25519 is supported: make one with "+
			"ssh-keygen -t ed25519", errKey, path, raw)
	}
	return keySigner(private), nil
}

func readKeyFile(path string) ([]byte, os.FileInfo, error) {
	data, info, err := readAtMost(path, maxKeyFile)
	if err != nil {
		err = fmt.Errorf("%w: %w", errKey, err)
	}
	return data, info, err
}

// readAtMost reads a file. A larger one is an error.
func readAtMost(path string, most int) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return data, info, err
}

// encryptedPKCS8 reports whether a key has the encrypted format of RFC 5958, which x/crypto/ssh does not know.
func encryptedPKCS8(data []byte) bool {
	block, _ := pem.Decode(data)
	return block != nil && block.Type == "ENCRYPTED PRIVATE KEY"
}

func publicKeyText(data []byte) bool {
	keys, err := parsePublicKeys(data)
	return err == nil && len(keys) > 0
}

type keySigner ed25519.PrivateKey

func (k keySigner) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), data), nil
}

func (k keySigner) KeyID() (string, error) {
	return dsse.SHA256KeyID(ed25519.PrivateKey(k).Public())
}

// parsePublicKeys reads ed25519 public keys: PEM blocks of type PUBLIC KEY, or lines in the format of OpenSSH's
// authorized_keys.
func parsePublicKeys(data []byte) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	if block, _ := pem.Decode(data); block != nil {
		for rest := data; ; {
			if block, rest = pem.Decode(rest); block == nil {
				return keys, nil
			}
			if block.Type != "PUBLIC KEY" {
				return nil, fmt.Errorf("a PEM block is %q, not a public key", block.Type)
			}
			parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			key, ok := parsed.(ed25519.PublicKey)
			if !ok {
				return nil, fmt.Errorf("a key of type %T, and only ed25519 is supported", parsed)
			}
			keys = append(keys, key)
		}
	}
	for rest := data; len(rest) > 0; {
		parsed, _, _, next, err := ssh.ParseAuthorizedKey(rest)
		if err != nil {
			if len(keys) > 0 {
				break // only blank lines or comments follow the last key
			}
			return nil, errors.New("no ed25519 public key in PEM or OpenSSH format")
		}
		key, err := ed25519Key(parsed)
		if err != nil {
			return nil, err
		}
		keys, rest = append(keys, key), next
	}
	if len(keys) == 0 {
		return nil, errors.New("the file is empty")
	}
	return keys, nil
}

func ed25519Key(key ssh.PublicKey) (ed25519.PublicKey, error) {
	if c, ok := key.(ssh.CryptoPublicKey); ok {
		if public, ok := c.CryptoPublicKey().(ed25519.PublicKey); ok {
			return public, nil
		}
	}
	return nil, fmt.Errorf("a key of type %s, and only ed25519 is supported", key.Type())
}
