#!/usr/bin/env bash
# e2e-kind.sh: runs the cluster tests on kind. It needs Docker, kind, kubectl, helm and python3.
# The workflow .github/workflows/e2e.yaml runs it by `make e2e-kind`. Neither the workflow nor
# this script has run yet. e2e-cluster.sh ran the same tests on Kubernetes 1.35.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in docker kind kubectl helm python3; do
  command -v "$tool" >/dev/null || { echo "e2e-kind needs $tool: install it" >&2; exit 1; }
done
name=fairpact-e2e
. hack/e2e-build.sh

KUBECONFIG=$(mktemp)
export KUBECONFIG
trap 'kind delete cluster --name "$name"; rm -f "$KUBECONFIG"' EXIT
kind create cluster --name "$name" --config manifests/kind.yaml --wait 5m
export FAIRPACT_LOAD_IMAGES="kind load image-archive --name $name" \
  FAIRPACT_E2E_DATA=$PWD/manifests/postgres-redis.yaml \
  FAIRPACT_E2E_DATABASE="postgres://fairpact:fairpact@postgres:5432/fairpact?sslmode=disable" \
  FAIRPACT_E2E_BASE_URL=node
cd e2e/cluster
../../bin/cluster.test -test.v -test.timeout=25m
