// Command images builds Fairpact's container images. It needs neither Docker nor a
// registry. An image has no base image. It contains static binaries, CA certificates, a
// user and a bill of materials. The command writes each image as a docker-archive, for
// `docker load`, `kind load image-archive` and `ctr images import`. The same commit,
// toolchain, flags and CA certificates give the same bytes.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// image is one image to build. Its first binary is the entrypoint.
type image struct {
	name     string
	packages []string
	test     bool // only for cluster tests
}

var images = []image{
	{name: "deal-api", packages: []string{"services/deal-api", "services/fairpactctl"}},
	{name: "log-server", packages: []string{"services/log-server"}},
	{name: "deadline-worker", packages: []string{"services/deadline-worker"}},
	{name: "clustertool", packages: []string{"hack/clustertool"}, test: true},
}

type options struct {
	root, out, repository, tag, version, revision, arch, ca string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	flag.StringVar(&o.root, "root", ".", "the checkout")
	flag.StringVar(&o.out, "out", "bin/images", "folder for the archives and their bills of materials")
	flag.StringVar(&o.repository, "repository", "localhost/fairpact", "prefix of the image names")
	flag.StringVar(&o.tag, "tag", "", "tag of the images (required): use a new tag for each build")
	flag.StringVar(&o.version, "version", "", "version that the binaries report (default: the tag)")
	flag.StringVar(&o.revision, "revision", "", "commit of the source, for the image labels and the binaries")
	flag.StringVar(&o.arch, "arch", runtime.GOARCH, "GOARCH of the images")
	flag.StringVar(&o.ca, "ca", "/etc/ssl/certs/ca-certificates.crt", "file of CA certificates for the images; another file changes the image digests")
	test := flag.Bool("test", false, "also build the image of the cluster tests")
	flag.Parse()
	if err := o.check(); err != nil {
		return err
	}
	o.version = cmp.Or(o.version, o.tag)
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, i := range images {
		if i.test && !*test {
			continue
		}
		if err := o.build(i); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	return nil
}

// Each build needs a new tag, because Kubernetes does not replace pods when an existing tag
// names another image.
func (o options) check() error {
	if o.tag == "" || o.tag == "latest" {
		return fmt.Errorf("-tag %q does not name one build: give a tag such as v1.2.3", o.tag)
	}
	return nil
}

// build writes the image to NAME_TAG.tar and its bill of materials to NAME_TAG.sbom.json. It
// prints the image's name and digest, and the path of NAME_TAG.tar.
func (o options) build(i image) error {
	dir, err := os.MkdirTemp("", "fairpact-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var files []string
	for _, source := range i.packages {
		file := filepath.Join(dir, filepath.Base(source))
		if err := o.compile(source, file); err != nil {
			return err
		}
		files = append(files, file)
	}
	bill, err := billOfMaterials(i.name, o.version, files)
	if err != nil {
		return err
	}
	built, err := o.assemble(files, bill)
	if err != nil {
		return err
	}
	ref, err := name.NewTag(o.repository+"/"+i.name+":"+o.tag, name.StrictValidation)
	if err != nil {
		return err
	}
	base := filepath.Join(o.out, i.name+"_"+strings.ReplaceAll(o.tag, "/", "_"))
	if err := os.WriteFile(base+".sbom.json", bill, 0o644); err != nil {
		return err
	}
	if err := tarball.WriteToFile(base+".tar", ref, built); err != nil {
		return err
	}
	digest, err := built.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s %s\n", ref, digest, base+".tar")
	return nil
}

func (o options) compile(folder, file string) error {
	const pkg = "github.com/fairpact/fairpact/internal/platform/version"
	ldflags := fmt.Sprintf("-s -w -buildid= -X %s.Version=%s -X %s.Revision=%s", pkg, o.version, pkg, o.revision)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", file, ".")
	cmd.Dir = filepath.Join(o.root, folder)
	// These variables override this machine's settings of Go, so that the same source gives
	// the same file.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+o.arch, "GOFLAGS=-mod=readonly",
		"GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", folder, err, out)
	}
	return nil
}
