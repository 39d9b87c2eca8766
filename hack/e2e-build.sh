# e2e-build.sh: builds the tests and the images of the cluster tests. The images have two
# versions, for the upgrade test. e2e-cluster.sh and e2e-kind.sh source this file.
# shellcheck shell=bash
images=$PWD/bin/images-e2e
revision=$(git rev-parse HEAD 2>/dev/null || true)
rm -rf "$images"
go -C hack build -buildvcs=false -o ../bin/build-images ./images
./bin/build-images -out "$images" -tag e2e-1 -version 0.0.1 -revision "$revision" -test
./bin/build-images -out "$images" -tag e2e-2 -version 0.0.2 -revision "$revision"
go -C hack/charttools build -buildvcs=false -o ../../bin/ ./kubeschemas
./bin/kubeschemas -definitions bin/definitions
mkdir -p bin/blackbox
go test -c -o bin/blackbox/ ./e2e/api ./e2e/trust ./e2e/mcp
go test -c -tags cluster -o bin/cluster.test ./e2e/cluster
export FAIRPACT_E2E_IMAGES=$images FAIRPACT_E2E_TAGS="e2e-1 e2e-2" FAIRPACT_E2E_REVISION=$revision \
  FAIRPACT_E2E_DEFINITIONS=$PWD/bin/definitions FAIRPACT_E2E_BLACKBOX=$PWD/bin/blackbox
