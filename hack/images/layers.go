package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	user   = "65532:65532"
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	group  = "root:x:0:\nnonroot:x:65532:\n"
	// Names are looked up in /etc/hosts first, then by DNS.
	nsswitch = "hosts: files dns\n"
)

// assemble puts two layers on scratch: what seldom changes, and the binaries.
func (o options) assemble(binaries []string, bill []byte) (v1.Image, error) {
	ca, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, fmt.Errorf("the CA certificates (-ca): %w", err)
	}
	base := []file{
		{"etc/passwd", 0o644, []byte(passwd)}, {"etc/group", 0o644, []byte(group)}, {"etc/nsswitch.conf", 0o644, []byte(nsswitch)},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, ca},
	}
	top := []file{{"sbom.json", 0o644, bill}}
	for _, binary := range binaries {
		data, err := os.ReadFile(binary)
		if err != nil {
			return nil, err
		}
		top = append(top, file{filepath.Base(binary), 0o755, data})
	}
	img := empty.Image
	for _, files := range [][]file{base, top} {
		l, err := layer(files)
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", o.arch
	if config.Architecture == "" {
		config.Architecture = runtime.GOARCH
	}
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + filepath.Base(binaries[0])}, User: user, WorkingDir: "/",
		Labels: map[string]string{"org.opencontainers.image.version": o.version, "org.opencontainers.image.revision": o.revision},
	}
	return mutate.ConfigFile(img, config)
}

// file is one file of a layer, owned by root.
type file struct {
	path string
	mode int64
	data []byte
}

// layer packs files and the folders above them.
func layer(files []file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	var parents func(string) error
	parents = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := parents(filepath.Dir(dir)); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
	}
	for _, f := range files {
		if err := parents(filepath.Dir(f.path)); err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0)}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
}
