#!/usr/bin/env bash
# e2e-kind.sh: the cluster tests on kind. It needs Docker, kind, kubectl and helm.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in docker kind kubectl helm; do
  command -v "$tool" >/dev/null || { echo "e2e-kind needs $tool" >&2; exit 1; }
done
name=fairpact-e2e
images=$PWD/bin/images-e2e
revision=$(git rev-parse HEAD 2>/dev/null || true)

rm -rf "$images"
go -C hack build -buildvcs=false -o ../bin/build-images ./images
./bin/build-images -out "$images" -tag e2e-1 -version 0.0.1 -revision "$revision" -test
./bin/build-images -out "$images" -tag e2e-2 -version 0.0.2 -revision "$revision"

KUBECONFIG=$(mktemp)
export KUBECONFIG
trap 'kind delete cluster --name "$name"; rm -f "$KUBECONFIG"' EXIT
kind create cluster --name "$name" --config manifests/kind.yaml --wait 5m
export FAIRPACT_E2E_IMAGES=$images FAIRPACT_E2E_TAGS="e2e-1 e2e-2" FAIRPACT_LOAD_IMAGES="kind load image-archive --name $name" \
  FAIRPACT_E2E_DATA=$PWD/manifests/postgres-redis.yaml \
  FAIRPACT_E2E_DATABASE="postgres://fairpact:fairpact@postgres:5432/fairpact?sslmode=disable" \
  FAIRPACT_E2E_BASE_URL=node
go test -tags cluster -count=1 -v -timeout=25m ./e2e/cluster
