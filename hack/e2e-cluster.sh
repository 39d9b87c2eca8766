#!/usr/bin/env bash
# e2e-cluster.sh: runs the cluster tests on a cluster of two nodes on this machine. The command
# $CLUSTER makes the cluster; it has the subcommands up, down, load, data-image and run.
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=$(realpath "${CLUSTER:-../shared/cluster/cluster}")
. hack/e2e-build.sh

trap '"$cluster" down' EXIT
"$cluster" up --nodes 2
"$cluster" data-image
export FAIRPACT_LOAD_IMAGES="$cluster load" \
  FAIRPACT_E2E_DATABASE="postgres://app:app@postgres:5432/app?sslmode=disable" \
  FAIRPACT_E2E_DATA=$(realpath "$(dirname "$cluster")/manifests/postgres-redis.yaml")
cd e2e/cluster
"$cluster" run ../../bin/cluster.test -test.v -test.timeout=40m
