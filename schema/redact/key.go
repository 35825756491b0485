package redact

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Scopes of a key: where equal secrets have equal tags.
const (
	scopeHost      = "host"      // in every bundle of this user on this host
	scopeFile      = "file"      // wherever the same key file is used
	scopeEphemeral = "ephemeral" // in one bundle
)

// keyBytes is the length of a new key. Shorter key files are refused.
const keyBytes = 32

// NewEphemeral makes a Redactor with a random key that is not stored.
func NewEphemeral() (*Redactor, error) {
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	r := New(key)
	r.scope = scopeEphemeral
	return r, nil
}

// NewFromFile makes a Redactor with the key in a file, 32 to 4096 bytes that
// only the user can read.
func NewFromFile(file string) (*Redactor, error) {
	key, err := readKey(file)
	if err != nil {
		return nil, fmt.Errorf("redaction key: %w", err)
	}
	r := New(key)
	r.scope = scopeFile
	return r, nil
}

// NewOfHost makes a Redactor with the host's key, in a file that is made on
// first use. Two processes that make it at once get the same key. Where no file can be
// made, the key is ephemeral, and [Redactor.Unkept] says why.
func NewOfHost(file string) (*Redactor, error) {
	key, err := readKey(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		if err = makeKey(file); err != nil {
			return NewUnkept(fmt.Errorf("keep the redaction key: %w", err))
		}
		key, err = readKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("redaction key: %w", err)
	}
	r := New(key)
	r.scope = scopeHost
	return r, nil
}

// NewUnkept makes a Redactor with an ephemeral key, because the host's key could not be stored.
func NewUnkept(why error) (*Redactor, error) {
	r, err := NewEphemeral()
	if err != nil {
		return nil, err
	}
	r.unkept = why
	return r, nil
}

func readKey(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for a pipe's writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: name a file that holds the key", file)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others can read %s: run chmod 600 on it", file)
	}
	key, err := io.ReadAll(io.LimitReader(f, 4097))
	if err != nil {
		return nil, err
	}
	if len(key) < keyBytes || len(key) > 4096 {
		return nil, fmt.Errorf("%s holds %d bytes, and a key has %d to 4096", file, len(key), keyBytes)
	}
	return key, nil
}

// makeKey puts a new key under the name, unless another process was quicker.
func makeKey(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(key)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
