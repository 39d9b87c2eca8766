#!/usr/bin/env bash
# check-chart.sh: lints and renders the chart with each set of values, and checks the
# result against the schemas of Kubernetes and of the custom kinds that the chart uses.
# Then it runs the unit tests, and checks VALUES.md, and the dashboard against Grafana's schema.
# `make chart` runs it. It needs no cluster, and no network except Go's module proxy.
set -euo pipefail
cd "$(dirname "$0")/.."
chart=charts/fairpact
minor=35
go -C hack/charttools build -buildvcs=false -o ../../bin/ \
  -ldflags "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=$minor" \
  helm.sh/helm/v3/cmd/helm github.com/helm-unittest/helm-unittest/cmd/helm-unittest github.com/yannh/kubeconform/cmd/kubeconform \
  github.com/norwoodj/helm-docs/cmd/helm-docs ./kubeschemas ./dashboardcheck
if grep -nE '^ *# -- .* --' $chart/values.yaml; then
  echo "helm-docs takes the text before a second \" --\" for a key, so the value has no description: write the flag without its dashes"; exit 1
fi
bin/kubeschemas bin/schemas
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

conform() { bin/kubeconform -strict -skip GCPBackendPolicy -schema-location 'bin/schemas/{{.ResourceKind}}_{{.Group}}_{{.ResourceAPIVersion}}.json' "$@"; }

# values/ has complete sets of values. combinations/ has partial sets, which are added to $minimal.
minimal=$chart/tests/values/kms.yaml
for values in $chart/tests/values/*.yaml manifests/values-{gcp,aws}.yaml $chart/tests/combinations/*.yaml; do
  set -- --values "$values"
  case $values in */combinations/*) set -- --values $minimal "$@" ;; esac
  bin/helm lint --quiet --strict $chart "$@"
  bin/helm template fairpact $chart --namespace here "$@" > "$work/$(basename "$values")"
done
conform -summary "$work"

# planted fails unless kubeconform refuses a copy of FILE in which FIELD is renamed to WRONG.
planted() { # arguments: FILE FIELD WRONG
  sed "s/\b$2:/$3:/" "$work/$1" > "$work/planted.yaml"
  if conform "$work/planted.yaml" > "$work/said" || ! grep -q "$3" "$work/said"; then
    echo "kubeconform accepts the unknown field $3 in $1"; cat "$work/said"; exit 1
  fi
}
planted kms.yaml readOnlyRootFilesystem readOnlyRootFileSystem
planted monitoring-services.yaml interval intervals
planted gateway.yaml backendRefs backends

# The ConfigMap of a key set of 1,000 keys, the limit, must fit into an annotation (256 KiB), because kubectl apply
# copies it into one. The chart must refuse one key more.
keys() { # argument: COUNT
  awk -v n="$1" 'BEGIN {
    print "signing: {uri: \"\", keySet: {keys: ["
    for (i = 1; i <= n; i++) printf "{pubkey: \"es256:02%064d\", retired_at: 9007199254740991, tree_size: 9007199254740991},\n", i
    print "]}}" }' > "$work/keys.txt"
  bin/helm template fairpact $chart --namespace here --values $minimal --values "$work/keys.txt" --show-only templates/key-set.yaml
}
keys 1000 > "$work/most.txt"
if [ "$(grep -c '  key-set.json: ' "$work/most.txt")" != 1 ] || [ "$(wc -c < "$work/most.txt")" -gt 262144 ]; then
  echo "the ConfigMap of a key set of 1,000 keys has $(wc -c < "$work/most.txt") bytes, want at most 262144"; exit 1
fi
if keys 1001 > /dev/null 2> "$work/said" || ! grep -q maxItems "$work/said"; then
  echo "the chart accepts a key set of 1,001 keys; the limit is 1,000"; cat "$work/said"; exit 1
fi

if [ "$(grep -c '^kind:' "$work/everything.yaml")" != "$(grep -c '^    owner: trust@example.com$' "$work/everything.yaml")" ]; then
  echo "an object of everything.yaml lacks commonAnnotations"; exit 1
fi

bin/helm package $chart --destination "$work" > /dev/null
for page in "$chart"/runbooks/*; do
  tar -tzf "$work"/fairpact-*.tgz "fairpact/runbooks/$(basename "$page")" > /dev/null || { echo "the packaged chart lacks $page"; exit 1; }
done

bin/helm-unittest --strict $chart

if ! bin/helm-docs --log-level warning --chart-search-root $chart --sort-values-order file --template-files VALUES.md.gotmpl --dry-run | diff - $chart/VALUES.md; then
  echo "$chart/VALUES.md is stale: run make chart-docs"; exit 1
fi
if grep '|  |$' $chart/VALUES.md; then echo "values.yaml describes these values nowhere"; exit 1; fi

bin/dashboardcheck $chart/files/dashboard.json
sed 's/"legendFormat"/"legend"/' $chart/files/dashboard.json > "$work/planted.json"
if bin/dashboardcheck "$work/planted.json" 2> "$work/said" || ! grep -q "'legend'" "$work/said"; then
  echo "dashboardcheck accepts the unknown field legend in a query"; cat "$work/said"; exit 1
fi
