package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// readSecrets reads the secrets for which the configuration names files. A secret in two places is an error, because
// the two may differ.
func (c *Config) readSecrets() error {
	for _, s := range []struct {
		key    string
		secret *Secret
		file   string
	}{
		{"upstream.password", &c.Upstream.Password, c.Upstream.PasswordFile},
		{"sentinel.password", &c.Sentinel.Password, c.Sentinel.PasswordFile},
	} {
		if s.file == "" {
			continue
		}
		if *s.secret != "" {
			return fmt.Errorf("%s-file: excludes %s", s.key, s.key)
		}
		text, err := readSecret(s.file)
		if err != nil {
			return fmt.Errorf("%s-file: %w", s.key, err)
		}
		*s.secret = text
	}
	return nil
}

// secretLimit is more than any password has. A larger file is one that was named by mistake.
const secretLimit = 64 << 10

// readSecret returns the content of a file, without the one line end that editors append. No error contains any part of
// it.
func readSecret(name string) (Secret, error) {
	text, err := readLimited(name, secretLimit+2)
	if err != nil {
		return "", err
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	switch {
	case len(text) == 0:
		return "", fmt.Errorf("%s is empty", name)
	case len(text) > secretLimit:
		return "", errors.New(name + " is too large for a password")
	}
	return Secret(text), nil
}

// readLimited returns the content of a file, of which it reads one byte beyond the limit at most: a device may have no
// end.
func readLimited(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, limit+1))
}
