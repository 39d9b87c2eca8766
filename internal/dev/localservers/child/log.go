package child

import (
	"io"
	"os"
	"strings"
)

// OpenLog opens a log file for appending, and creates the file if necessary. The result `end` is
// the size of the file in bytes.
func OpenLog(path string) (f *os.File, end int64, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	end, err = f.Seek(0, io.SeekEnd)
	return f, end, err
}

// Tail returns at most `lines` lines from the end of a file. It skips the first `offset` bytes
// of the file, and reads at most the last 64 KiB of the rest.
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
