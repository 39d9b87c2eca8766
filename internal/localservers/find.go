package localservers

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pgInstall is an installation of Postgres that works.
type pgInstall struct {
	postgres, initdb string // paths
	major            int    // 15 for 15.18
}

var pgVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// findPostgres returns the working installations: first the one in PATH, then the
// newest.
func findPostgres(ctx context.Context) ([]pgInstall, error) {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	dirs = append(dirs, "/usr/local/bin", "/usr/local/pgsql/bin")
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(debian, func(a, b string) int { return debianMajor(b) - debianMajor(a) })
	dirs = append(dirs, debian...)

	var installs []pgInstall
	tried := []string{"PATH, /usr/local/bin and /usr/lib/postgresql/*/bin were searched for postgres and initdb"}
	seen := map[string]bool{}
	for _, dir := range dirs {
		in := pgInstall{postgres: filepath.Join(dir, "postgres"), initdb: filepath.Join(dir, "initdb")}
		real, err := filepath.EvalSymlinks(in.postgres)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		if in.major, err = askVersion(ctx, in.postgres); err == nil {
			_, err = askVersion(ctx, in.initdb)
		}
		if err != nil {
			tried = append(tried, in.postgres+": "+err.Error())
			continue
		}
		installs = append(installs, in)
	}
	if len(installs) == 0 {
		return nil, &MissingError{"Postgres", "postgresql", tried}
	}
	return installs, nil
}

func debianMajor(bin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return n
}

func askVersion(ctx context.Context, program string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return 0, err
	}
	m := pgVersion.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s --version prints no version", program)
	}
	return strconv.Atoi(string(m[1]))
}

// findRedis returns the path of a working redis-server.
func findRedis(ctx context.Context) (string, error) {
	tried := []string{"PATH, /usr/bin and /usr/local/bin were searched for redis-server"}
	for _, name := range []string{"redis-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		out, err := exec.CommandContext(bounded, path, "--version").Output()
		cancel()
		if err == nil && bytes.Contains(out, []byte("v=")) {
			return path, nil
		}
		tried = append(tried, path+" --version: "+strings.TrimSpace(string(out)))
	}
	return "", &MissingError{"Redis", "redis-server", tried}
}
