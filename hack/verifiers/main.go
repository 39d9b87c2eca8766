// Command verifiers packs the verifiers for other programs, from the sources that the service serves:
// the modules of the web page as an npm package, and the Python verifier as a wheel.
//
//	verifiers OUT VERSION
//
// Two runs write the same bytes. hack/release-verifiers.sh runs and checks it.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/e2e/verifier"
)

// epoch is the time of each file in a package: the first that a zip file can state.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: verifiers OUT VERSION, in the top folder")
		os.Exit(2)
	}
	out, version := os.Args[1], strings.TrimPrefix(os.Args[2], "v")
	if err := cmp.Or(os.MkdirAll(out, 0o755), writeNPM(out, version), writeWheel(out, version)); err != nil {
		fmt.Fprintln(os.Stderr, "verifiers:", err)
		os.Exit(1)
	}
}

const (
	pages = "internal/api/pages/static"
	npm   = "hack/verifiers/npm"
)

var imported = regexp.MustCompile(`(?m)\bfrom '\./([^']+)'`)

func writeNPM(out, version string) error {
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "README.md", "index.js", "cli.js"} {
		text, err := os.ReadFile(filepath.Join(npm, name))
		if err != nil {
			return err
		}
		files[name] = text
	}
	files["package.json"] = bytes.Replace(files["package.json"], []byte(`"version": "0.0.0"`), []byte(`"version": "`+version+`"`), 1)
	var left []string
	for _, m := range imported.FindAllSubmatch(files["index.js"], -1) {
		left = append(left, strings.TrimPrefix(string(m[1]), "lib/"))
	}
	for ; len(left) > 0; left = left[1:] { // with all modules that a module imports
		name := "lib/" + left[0]
		if files[name] != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(pages, left[0]))
		if err != nil {
			return err
		}
		files[name] = text
		for _, m := range imported.FindAllSubmatch(text, -1) {
			left = append(left, string(m[1]))
		}
	}
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(files[name])), ModTime: epoch}
		if name == "cli.js" {
			header.Mode = 0o755
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(files[name]); err != nil {
			return err
		}
	}
	if err := cmp.Or(archive.Close(), zipped.Close()); err != nil {
		return err
	}
	return write(out, "fairpact-verify-"+version+".tgz", b.Bytes())
}

// writeWheel writes the wheel (PyPA, "Binary distribution format"): a zip file of one module and of
// its metadata.
func writeWheel(out, version string) error {
	normal := strings.ReplaceAll(version, "-", "+") // PEP 440 has no SemVer pre-release: a local version label stands for it
	info := "fairpact_verify-" + normal + ".dist-info/"
	files := []struct{ name, text string }{
		{"fairpact_verify.py", verifier.OneFile()},
		{info + "METADATA", "Metadata-Version: 2.1\nName: fairpact-verify\nVersion: " + normal + "\nSummary: Verifies Fairpact certificates and bundles offline. Standard library only.\nRequires-Python: >=3.9\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: fairpact\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "entry_points.txt", "[console_scripts]\nfairpact-verify = fairpact_verify:main\n"},
	}
	record := ""
	for _, file := range files {
		digest := sha256.Sum256([]byte(file.text))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", file.name, base64.RawURLEncoding.EncodeToString(digest[:]), len(file.text))
	}
	files = append(files, struct{ name, text string }{info + "RECORD", record + info + "RECORD,,\n"})
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	for _, file := range files {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: file.name, Method: zip.Deflate, Modified: epoch})
		if err != nil {
			return err
		}
		if _, err := w.Write([]byte(file.text)); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return write(out, "fairpact_verify-"+normal+"-py3-none-any.whl", b.Bytes())
}

func write(out, name string, body []byte) error {
	path := filepath.Join(out, name)
	fmt.Println(path, len(body), "bytes")
	return os.WriteFile(path, body, 0o644)
}
