package localservers

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// findPostgres returns the directory of the Postgres programs. `major` is the major version of
// an existing data directory, or empty if there is none. findPostgres prefers this version, then
// the Postgres in PATH, then the newest installed version. The error is a *MissingError if no
// Postgres is installed.
func findPostgres(major string) (string, error) {
	const debian = "/usr/lib/postgresql"
	dirs := []string{filepath.Join(debian, major, "bin")}
	if program, err := exec.LookPath("postgres"); err == nil {
		if program, err = filepath.EvalSymlinks(program); err == nil { // a link to postgres in PATH may have no initdb beside it
			dirs = append(dirs, filepath.Dir(program))
		}
	}
	installed, _ := filepath.Glob(debian + "/*/bin")
	version := func(dir string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		return n
	}
	slices.SortFunc(installed, func(a, b string) int { return version(b) - version(a) })
	for _, dir := range append(dirs, append(installed, "/usr/local/pgsql/bin")...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", &MissingError{"Postgres", "postgresql"}
}

func findRedis() (string, error) {
	for _, name := range []string{"redis-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &MissingError{"Redis", "redis-server"}
}
