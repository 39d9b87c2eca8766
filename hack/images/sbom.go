package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials returns a CycloneDX document that lists the modules in the binaries. Each
// binary's build information names its modules. The property go:h1 of a module is the
// module's sum in go.sum. The sum is not listed as a hash, because it covers many files.
func billOfMaterials(image, version string, files []string) ([]byte, error) {
	components := make(map[string]cdx.Component)
	for _, file := range files {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, err
		}
		components["std"] = cdx.Component{
			BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
			PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
		}
		for _, module := range info.Deps {
			if c, ok := component(module); ok {
				components[c.BOMRef] = c
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(components), func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: image, Type: cdx.ComponentTypeContainer, Name: "fairpact/" + image, Version: version,
	}}
	bom.Components = &sorted
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	if err := encoder.SetPretty(true).Encode(bom); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// component describes a module, or the module that replaces it, for the bill of materials. It
// returns false if the replacement is a folder of this checkout: then the module is the product
// itself, which the bill does not list.
func component(module *debug.Module) (cdx.Component, bool) {
	if module.Replace != nil {
		module = module.Replace
	}
	if strings.HasPrefix(module.Path, ".") {
		return cdx.Component{}, false
	}
	purl := "pkg:golang/" + module.Path + "@" + module.Version
	c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: purl}
	if strings.HasPrefix(module.Sum, "h1:") {
		c.Properties = &[]cdx.Property{{Name: "go:h1", Value: module.Sum}}
	}
	return c, true
}
