//go:build pkcs11 && cgo

package signing

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// pin reads the user PIN anew at each login, so that a mended file is taken up.
// It is never kept, and no error holds any of it.
func (u pkcs11URI) pin() (string, error) {
	f, err := os.Open(u.pinFile)
	if err != nil {
		return "", fmt.Errorf("pin-source: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("pin-source: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("pin-source %s: it must be a regular file that not everybody may open (mode %04o): run chmod 600 on it", u.pinFile, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, 1025))
	if err != nil {
		return "", fmt.Errorf("pin-source: %w", err)
	}
	pin := strings.TrimRight(string(text), "\r\n")
	if pin == "" || len(text) > 1024 {
		return "", fmt.Errorf("pin-source %s: it is empty or over 1024 bytes; it must hold the PIN and nothing else", u.pinFile)
	}
	return pin, nil
}
