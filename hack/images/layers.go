package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// assemble puts two layers on an empty image: files that seldom change, and the
// binaries with their bill of materials. The first binary is the entrypoint.
func (o options) assemble(binaries []string, bill []byte) (v1.Image, error) {
	ca, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA certificates (flag -ca): %w", err)
	}
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }
	folder := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	base, err := layer(fstest.MapFS{
		"etc": folder, "etc/ssl": folder, "etc/ssl/certs": folder,
		"etc/passwd":                        file("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"),
		"etc/group":                         file("root:x:0:\nnonroot:x:65532:\n"),
		"etc/nsswitch.conf":                 file("hosts: files dns\n"),
		"etc/ssl/certs/ca-certificates.crt": file(string(ca)),
	})
	if err != nil {
		return nil, err
	}
	programs := fstest.MapFS{"sbom.json": file(string(bill))}
	for _, binary := range binaries {
		data, err := os.ReadFile(binary)
		if err != nil {
			return nil, err
		}
		programs[filepath.Base(binary)] = &fstest.MapFile{Data: data, Mode: 0o755}
	}
	top, err := layer(programs)
	if err != nil {
		return nil, err
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: o.arch, Created: v1.Time{Time: time.Unix(0, 0).UTC()}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + filepath.Base(binaries[0])}, User: "65532:65532", WorkingDir: "/",
			Labels: map[string]string{"org.opencontainers.image.version": o.version, "org.opencontainers.image.revision": o.revision},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, base, top)
}

// layer packs files into a layer of an image. The files belong to root and have no
// modification time, so that equal files give equal bytes.
func layer(files fstest.MapFS) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.AddFS(files), w.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
}
