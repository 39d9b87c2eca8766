#!/usr/bin/env bash
# e2e-cluster.sh: the cluster tests on a single-node cluster of this machine,
# which CLUSTER (a command with up, down, load, data-image and run) makes.
# Two versions of the images are built, to upgrade between.
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=$(realpath "${CLUSTER:-../shared/cluster/cluster}")
images=$PWD/bin/images-e2e
revision=$(git rev-parse HEAD 2>/dev/null || true)

rm -rf "$images"
go -C hack build -buildvcs=false -o ../bin/build-images ./images
./bin/build-images -out "$images" -tag e2e-1 -version 0.0.1 -revision "$revision" -test
./bin/build-images -out "$images" -tag e2e-2 -version 0.0.2 -revision "$revision"
go test -c -tags cluster -o bin/cluster.test ./e2e/cluster

trap '"$cluster" down' EXIT
"$cluster" up
"$cluster" data-image
export FAIRPACT_E2E_IMAGES=$images FAIRPACT_E2E_TAGS="e2e-1 e2e-2" FAIRPACT_LOAD_IMAGES="$cluster load" \
  FAIRPACT_E2E_DATABASE="postgres://app:app@postgres:5432/app?sslmode=disable" \
  FAIRPACT_E2E_DATA=$(realpath "$(dirname "$cluster")/manifests/postgres-redis.yaml")
cd e2e/cluster
"$cluster" run ../../bin/cluster.test -test.v -test.timeout=25m
