// Demo plays one deal of each algorithm against a running Fairpact and prints
// the conversation; it is what `make demo` runs. It finds the service by
// BASE_URL, or where the `make run` of this checkout is.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := localstack.Root()
	if err != nil {
		return err
	}
	base, err := baseURL(root)
	if err != nil {
		return err
	}
	c := &client{base: base, out: os.Stdout}
	c.http.Timeout = time.Minute
	c.say("# Fairpact at %s", base)
	if _, err := c.call(200, "GET", "/v1/status", "", nil); err != nil {
		return fmt.Errorf("%w\nis `make run` running?", err)
	}
	c.say("No signup: one call gives an API key.")
	created, err := c.call(201, "POST", "/v1/keys", "", nil)
	if err != nil {
		return err
	}
	var key struct {
		APIKey string `json:"api_key"`
	}
	if err := json.Unmarshal(created.body, &key); err != nil {
		return err
	}
	for _, sc := range scenarios {
		c.say("## %s: %s", sc.algorithm, sc.title)
		p, err := c.play(key.APIKey, sc)
		if err != nil {
			return fmt.Errorf("%s: %w", sc.algorithm, err)
		}
		if err := c.verify(root, p); err != nil {
			return fmt.Errorf("%s: %w", sc.algorithm, err)
		}
	}
	c.say("## The log that holds all three")
	if _, err := c.call(200, "GET", "/v1/log/tree-head", "", nil); err != nil {
		return err
	}
	by := "by the service and by a program that shares no code with it"
	if _, err := exec.LookPath("python3"); err != nil {
		by = "by the service alone: with Python a second program would check them"
	}
	fmt.Printf("%d deals played, their certificates verified %s.\n", len(scenarios), by)
	return nil
}

func baseURL(root string) (string, error) {
	if given := os.Getenv("BASE_URL"); given != "" {
		return strings.TrimRight(given, "/"), nil
	}
	url, err := os.ReadFile(filepath.Join(root, ".run/base-url"))
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("no `make run` of this checkout is up: start it in another terminal, or set BASE_URL")
	}
	return strings.TrimSpace(string(url)), err
}

// verify asks the service what it thinks of the certificate, and then a
// program that shares no code with it.
func (c *client) verify(root string, p *played) error {
	a, err := c.call(200, "GET", "/v1/verify/"+p.certID, "", nil)
	if err != nil {
		return err
	}
	var report struct {
		Valid bool `json:"valid"`
	}
	if err := json.Unmarshal(a.body, &report); err != nil {
		return err
	}
	if !report.Valid {
		return errors.New("the service does not find its own certificate valid")
	}
	dir, err := os.MkdirTemp("", "fairpact-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := []string{"e2e/verifier/verify.py", "--base-url", c.base}
	inputs, errInputs := json.Marshal(p.openings)
	params, errParams := json.Marshal(p.params)
	if err := errors.Join(errInputs, errParams); err != nil {
		return err
	}
	for _, f := range []struct {
		option  string
		content []byte
	}{{"certificate", p.certificate}, {"inputs", inputs}, {"params", params}} {
		path := filepath.Join(dir, f.option+".json")
		if err := os.WriteFile(path, f.content, 0o600); err != nil {
			return err
		}
		args = append(args, "--"+f.option, path)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		c.say("The independent verifier needs Python: apt-get install -y python3")
		return nil
	}
	fmt.Fprintf(c.out, "$ python3 %s\n", strings.ReplaceAll(strings.Join(args, " "), dir+"/", ""))
	cmd := exec.Command(python, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(c.out, "%s\n", out)
	if err != nil {
		return fmt.Errorf("the independent verifier does not accept the certificate: %w", err)
	}
	return nil
}
