# `make help` lists the targets. On a new Debian or Ubuntu machine with Go, they install what
# they need.

# If another user owns the checkout, Git refuses to read it, and `go build` works only with -buildvcs=false.
BUILDVCS := $(if $(shell git rev-parse HEAD 2>/dev/null),auto,false)
# Time limit of the tests of one package.
TEST_TIMEOUT := 25m

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## run all of Fairpact on this machine until Ctrl-C (settings: PORT=8080 WITNESSES=0 DATABASE_URL= REDIS_URL=)
	@hack/install-missing.sh $(if $(DATABASE_URL),,postgres) $(if $(REDIS_URL),,redis)
	@go -C hack build -buildvcs=false -o ../bin/stack ./stack
	@exec ./bin/stack -exit-with-parent

.PHONY: demo
demo: ## play a deal of each algorithm against the running `make run` (or BASE_URL=)
	@go build -buildvcs=$(BUILDVCS) -o bin/ ./services/fairpactctl
	@go -C hack build -buildvcs=false -o ../bin/demo ./demo
	@./bin/demo ./bin/fairpactctl \
	  "$(or $(BASE_URL),$(shell cat .run/base-url 2>/dev/null),$(error no running deployment is known: start `make run` in another terminal first, or give BASE_URL=))"

.PHONY: bench
bench: ## measure what a deal costs and write hack/bench/report.md (QUICK=1: three minutes, into bin/bench-quick; BENCH= flags)
	@hack/install-missing.sh postgres pgbench redis
	@go -C hack/bench build -buildvcs=false -o ../../bin/bench .
	@./bin/bench $(if $(QUICK),-quick) $(BENCH)

.PHONY: faults
faults: ## play deals while a seeded schedule injects faults, and check what the clients saw (SEED=1 MINUTES=2)
	@hack/install-missing.sh postgres redis python3
	@go -C hack/faults build -buildvcs=false -o ../../bin/faults/faults .
	@./bin/faults/faults -seed $(or $(SEED),1) -minutes $(or $(MINUTES),2)

.PHONY: faults-report
faults-report: ## run `make faults` with ten seeds and write hack/faults/report.md (SEEDS=10 MINUTES=3; about 50 minutes)
	@hack/install-missing.sh postgres redis python3
	@go -C hack/faults build -buildvcs=false -o ../../bin/faults/faults .
	@./bin/faults/faults -seeds $(or $(SEEDS),10) -minutes $(or $(MINUTES),3) -report hack/faults/report.md

.PHONY: faults-planted
faults-planted: ## plant bugs in copies of HEAD and check that `make faults` finds each
	@hack/install-missing.sh git postgres redis python3
	@go -C hack/faults build -buildvcs=false -o ../../bin/faults/faults .
	@./bin/faults/faults -plant hack/faults/plant $(if $(SEED),-seed $(SEED))

.PHONY: log-check
log-check: ## grow a log and have tessera's client and fsck verify it (LEAVES=200000)
	@hack/install-missing.sh postgres
	LEAVES=$(or $(LEAVES),200000) go -C hack/logcheck test -count=1 -v -timeout 30m .

.PHONY: build
build: ## build the binaries into bin/
	@echo "building into bin/ (minutes the first time, seconds after that)"
	@mkdir -p bin
	@go build -buildvcs=$(BUILDVCS) -o bin/ ./services/...

.PHONY: images
images: ## build the container images into bin/images, without Docker or a registry (TAG= their tag)
	@go -C hack build -buildvcs=false -o ../bin/build-images ./images
	./bin/build-images -tag "$(TAG)" -revision "$$(git rev-parse HEAD 2>/dev/null)"

# These packages are tested without the race detector, to save time:
# - the packages of e2e, which test separate binaries; test-long builds those with the detector,
# - packages whose tests start no goroutine of their own,
# - packages that import the Kubernetes client, which takes minutes to build twice.
PLAIN := /e2e|/services/deadline-worker$$|/internal/(rules/.*|api/(docs|invitation|pages|wire)|ctl|dev/structure|escrow/(sealing|worker)|platform/web)$$
# Lists only packages with tests. `go test -race` would also compile packages without tests.
WITH_TESTS := go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...
# `make lint` runs go vet, so the tests do not.
GO_TEST := go test -vet=off -p 4 -timeout=$(TEST_TIMEOUT)

.PHONY: test
test: ## run all tests except the long ones, and print the time of each package
	@hack/install-missing.sh postgres redis gcc softhsm python3 chromium
	@mkdir -p bin/e2e && all=$$($(WITH_TESTS)) && FAIRPACT_E2E_BIN=$(CURDIR)/bin/e2e hack/times.sh \
	  "go build -buildvcs=false -tags=crashpoints -o bin/e2e/ ./services/... && $(GO_TEST) $$(echo "$$all" | grep -E '$(PLAIN)' | tr '\n' ' ')" -- \
	  "CGO_ENABLED=1 $(GO_TEST) -tags=pkcs11 -run=PKCS11 ./internal/signing ./internal/signing/pkcs11" \
	  "cd hack && $(GO_TEST) ./..." \
	  "cd hack/bench && $(GO_TEST) ./..." \
	  "cd hack/faults && $(GO_TEST) ./..." -- \
	  "CGO_ENABLED=1 $(GO_TEST) -race $$(echo "$$all" | grep -Ev '$(PLAIN)' | tr '\n' ' ')"

.PHONY: test-long
test-long: ## run the tests that take minutes, with race-detector binaries: key rotation under load, the upgrade from the previous release, database failover, 10,000 parties
	@hack/install-missing.sh postgres redis gcc python3
	@CGO_ENABLED=1 FAIRPACT_E2E_BUILD="-race -tags=crashpoints" hack/times.sh "go test -p 1 -timeout=40m -tags=long ./e2e/long ./e2e/failover"

.PHONY: attacks
attacks: ## run every attack of the review from 1, 2 and 16 addresses, and others from one, and print the memory and a victim's latency as rows
	@hack/install-missing.sh postgres redis
	@go test -count=1 -v -timeout=30m -tags=long -run='TestReviewAtLength|TestFurtherAttacks|TestEnds|TestWhatAReplicaHolds' ./e2e/abuse

.PHONY: drill
drill: ## rehearse the restore of charts/fairpact/runbooks/restore.md, and print the time of each step
	@hack/install-missing.sh postgres redis
	@go test -count=1 -v -tags=long -run=TestRestoreToAnEarlierMoment ./e2e/failover

.PHONY: soak
soak: ## run mixed load for an hour and report what grows (MINUTES=60)
	@hack/install-missing.sh postgres redis
	@FAIRPACT_E2E_BUILD= FAIRPACT_SOAK=$(or $(MINUTES),60)m go test -count=1 -v -timeout=0 -tags=soak ./e2e/soak

.PHONY: e2e-cluster
e2e-cluster: ## install the chart on a real cluster on this machine and test it under faults (CLUSTER= the command that makes the cluster)
	hack/e2e-cluster.sh

.PHONY: e2e-kind
e2e-kind: ## run the cluster tests on kind; needs Docker, kind, kubectl and helm
	hack/e2e-kind.sh

# Build tags of e2e packages. Each adds files and removes none, so go vet takes all at once.
SUITES := cluster,long,alerts,soak
# The modules of the developer tools, except hack/gosec, which has no code.
TOOLS := hack hack/charttools hack/bench hack/faults hack/logcheck

.PHONY: lint
lint: ## check formatting, archaic words and go.mod, and run go vet and staticcheck
	@hack/check-words.sh
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (make fmt formats them):"; echo "$$unformatted"; exit 1; fi
	go vet -tags $(SUITES) ./...
	CGO_ENABLED=1 go vet -tags=pkcs11 ./internal/signing/...
	@go -C hack build -buildvcs=false -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	./bin/staticcheck -tags $(SUITES) ./...
	CGO_ENABLED=1 ./bin/staticcheck -tags=pkcs11 ./internal/signing/...
	for module in $(TOOLS); do (cd $$module && go vet ./... && $(CURDIR)/bin/staticcheck ./...) || exit 1; done
	for module in . $(TOOLS) hack/gosec; do go -C $$module mod tidy -diff || exit 1; done

.PHONY: chart
chart: ## check the Helm chart: lint, schemas of Kubernetes and Grafana, unit tests, VALUES.md
	hack/check-chart.sh

.PHONY: alerts
alerts: ## check the alerts with promtool, and make each fire in a Prometheus
	@hack/install-missing.sh postgres redis prometheus
	promtool check rules charts/fairpact/files/alerts.yaml
	promtool test rules charts/fairpact/files/alerts_test.yaml
	FAIRPACT_E2E_BUILD= go test -count=1 -parallel=7 -timeout=$(TEST_TIMEOUT) -tags=alerts ./e2e/alerts

.PHONY: chart-docs
chart-docs: ## write the chart's VALUES.md from the comments of values.yaml
	@go -C hack/charttools build -buildvcs=false -o ../../bin/ github.com/norwoodj/helm-docs/cmd/helm-docs
	./bin/helm-docs --log-level warning --chart-search-root charts/fairpact --sort-values-order file --template-files VALUES.md.gotmpl --output-file VALUES.md

.PHONY: fmt
fmt: ## format the Go code
	gofmt -w $$(git ls-files '*.go')

.PHONY: vulncheck
vulncheck: ## look for known vulnerabilities (reads vuln.go.dev, or VULNDB=)
	go -C hack build -buildvcs=false -o ../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	./bin/govulncheck $(if $(VULNDB),-db $(VULNDB)) ./...

# Rules of gosec that are off, because they find only correct code here:
#   G104  errors not handled: closing or removing a file or connection after a failure that was reported
#   G115  integer conversions: they convert lengths, or sizes and times that are limited when they are read (0 to 2^53-1)
#   G304  files by variable: their names come from the operator's settings or command line, never from a caller
# The servers and fakes of `make run` and of the tests are excluded. An exception for a single line states its reason in that line.
GOSEC := -exclude=G104,G115,G304 -exclude-dir=internal/dev/localservers -exclude-dir=internal/dev/localstack \
  -exclude-dir=internal/dev/kmstest -exclude-dir=internal/dev/devbeacon

.PHONY: gosec
gosec: ## look for insecure code in the product
	go -C hack/gosec build -buildvcs=false -o ../../bin/gosec github.com/securego/gosec/v2/cmd/gosec
	./bin/gosec -quiet $(GOSEC) ./internal/... ./services/...

.PHONY: clean
clean: ## remove build results and all data of `make run`
	@if [ -e .run ]; then go -C hack run ./stack -reset; fi
	rm -rf bin
