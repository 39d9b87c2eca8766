// Command kubeschemas writes JSON schemas for kubeconform into a folder. The schemas of
// built-in kinds come from the OpenAPI document of Kubernetes. The schemas of the chart's
// custom kinds come from their CustomResourceDefinitions. kubeschemas downloads these
// sources as Go modules. The schemas refuse unknown fields, which the API server would drop silently.
//
// With -definitions, kubeschemas writes only the CustomResourceDefinitions. The cluster tests
// install them.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

type module struct{ path, version, sum string }

var (
	kubernetes = module{"k8s.io/kubernetes", "v1.35.4", "h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM="}
	operator   = module{"github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="}
	gateway    = module{"sigs.k8s.io/gateway-api", "v1.6.3", "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc="}
)

var customKinds = []struct {
	module module
	file   string
}{
	{operator, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"},
	{operator, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"},
	{operator, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
	{gateway, "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"},
}

type schema = map[string]any

func main() {
	do := write
	switch {
	case len(os.Args) == 3 && os.Args[1] == "-definitions":
		do = writeDefinitions
	case len(os.Args) != 2:
		fmt.Fprintln(os.Stderr, "usage: kubeschemas [-definitions] FOLDER")
		os.Exit(2)
	}
	if err := do(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "kubeschemas:", err)
		os.Exit(1)
	}
}

func writeDefinitions(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, kind := range customKinds {
		text, err := read(kind.module, kind.file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(kind.file)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func write(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	definitions, err := builtIn(folder)
	if err != nil {
		return err
	}
	for _, kind := range customKinds {
		if err := custom(folder, kind.module, kind.file, definitions); err != nil {
			return fmt.Errorf("%s: %w", kind.file, err)
		}
	}
	return nil
}

func read(m module, file string) ([]byte, error) {
	cmd := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Env = append(os.Environ(), "GO111MODULE=on", "GOWORK=off")
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || err != nil {
		return nil, fmt.Errorf("go mod download %s@%s: %w %s", m.path, m.version, errors.Join(err, jsonErr), got.Error)
	}
	if got.Sum != m.sum {
		return nil, fmt.Errorf("%s@%s has the hash %s, want %s", m.path, m.version, got.Sum, m.sum)
	}
	return os.ReadFile(filepath.Join(got.Dir, file))
}

// builtIn writes the schema of every built-in kind. It also returns all definitions of the
// OpenAPI document, because the schemas of custom kinds refer to them.
func builtIn(folder string) (definitions schema, err error) {
	text, err := read(kubernetes, "api/openapi-spec/swagger.json")
	if err != nil {
		return nil, err
	}
	var document struct{ Definitions schema }
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	definitions = document.Definitions
	// The OpenAPI document declares these two types as strings. The API server also accepts numbers.
	definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = schema{"type": []any{"string", "number"}}
	definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = schema{"type": []any{"string", "integer"}}
	forbidUnknownFields(definitions)
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		kinds, _ := definitions[name].(schema)["x-kubernetes-group-version-kind"].([]any)
		// Only the definition of a Kubernetes object has exactly one kind. The type of a field
		// has no kind. DeleteOptions, the body of a request, has several kinds.
		if len(kinds) != 1 {
			continue
		}
		kind := kinds[0].(schema)
		whole := maps.Clone(definitions[name].(schema))
		if err := save(folder, kind["group"].(string), kind["version"].(string), kind["kind"].(string), whole, definitions); err != nil {
			return nil, err
		}
	}
	return definitions, nil
}

// custom writes the schema of each version that a CustomResourceDefinition serves.
func custom(folder string, m module, file string, definitions schema) error {
	text, err := read(m, file)
	if err != nil {
		return err
	}
	var resource struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Served bool
				Schema struct {
					Whole schema `yaml:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &resource); err != nil {
		return err
	}
	for _, version := range resource.Spec.Versions {
		if !version.Served {
			continue
		}
		whole := version.Schema.Whole
		forbidUnknownFields(whole)
		whole["properties"].(schema)["metadata"] = schema{"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
		if err := save(folder, resource.Spec.Group, version.Name, resource.Spec.Names.Kind, whole, definitions); err != nil {
			return err
		}
	}
	return nil
}

// forbidUnknownFields makes a schema and the schemas inside it reject unknown fields, except schemas with
// additionalProperties or x-kubernetes-preserve-unknown-fields.
func forbidUnknownFields(node any) {
	switch node := node.(type) {
	case schema:
		_, fields := node["properties"].(schema)
		_, open := node["additionalProperties"]
		keep, _ := node["x-kubernetes-preserve-unknown-fields"].(bool)
		if fields && !open && !keep {
			node["additionalProperties"] = false
		}
		for _, child := range node {
			forbidUnknownFields(child)
		}
	case []any:
		for _, child := range node {
			forbidUnknownFields(child)
		}
	}
}

func save(folder, group, version, kind string, whole, definitions schema) error {
	apiVersion := version
	if group != "" {
		apiVersion = group + "/" + version
	}
	if properties, ok := whole["properties"].(schema); ok {
		properties = maps.Clone(properties)
		properties["apiVersion"], properties["kind"] = schema{"const": apiVersion}, schema{"const": kind}
		whole["properties"] = properties
	}
	needed := schema{}
	collect(whole, definitions, needed)
	whole["definitions"] = needed
	whole["$schema"] = "http://json-schema.org/draft-07/schema#"
	text, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	// Core kinds have no group. In their file names, kubeconform uses the version, v1, as the group.
	if group == "" {
		group = version
	}
	name := strings.ToLower(strings.Join([]string{kind, group, version}, "_")) + ".json"
	return os.WriteFile(filepath.Join(folder, name), text, 0o644)
}

func collect(node any, definitions, needed schema) {
	switch node := node.(type) {
	case schema:
		if ref, ok := node["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/definitions/")
			if _, done := needed[name]; !done {
				needed[name] = definitions[name]
				collect(definitions[name], definitions, needed)
			}
		}
		for _, child := range node {
			collect(child, definitions, needed)
		}
	case []any:
		for _, child := range node {
			collect(child, definitions, needed)
		}
	}
}
