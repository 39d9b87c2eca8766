// Command registry is an OCI registry with storage on disk, for trials of
// hack/release.sh on one machine. Start it with `registry serve CONFIG.yaml`.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	if registry.RootCmd.Execute() != nil {
		os.Exit(1)
	}
}
