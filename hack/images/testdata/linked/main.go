// Command linked prints the values that the linker set.
package main

import "github.com/fairpact/fairpact/internal/platform/version"

func main() { println(version.Version, version.Revision) }
