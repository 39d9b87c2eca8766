package child

import (
	"io"
	"os"
	"strings"
)

// OpenLog opens a log file for appending and creates it if necessary. end is its size in
// bytes.
func OpenLog(path string) (f *os.File, end int64, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	end, err = f.Seek(0, io.SeekEnd)
	return f, end, err
}

// Tail returns the last lines of a file, but nothing before offset and at most 64 KiB.
func Tail(path string, offset int64, lines int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	data := make([]byte, min(end-offset, 64<<10))
	if _, err := f.ReadAt(data, end-int64(len(data))); err != nil && err != io.EOF {
		return "", err
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n"), nil
}
