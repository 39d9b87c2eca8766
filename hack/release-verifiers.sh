#!/usr/bin/env bash
# release-verifiers.sh VERSION [URL]: packs the verifiers into bin/verifiers (an npm package and a wheel), installs both and
# fairpactctl in empty folders, and requires the exit codes of /protocol, section 9.2, on bundles of e2e/testdata:
# 0 good, 1 forged, 2 unreadable, 4 of an unknown issuer. With URL, a running deployment, also on a deal that it plays there.
# Nothing else is fetched. It needs node, npm and python3 with venv.
#   hack/release-verifiers.sh v1.2.3 http://127.0.0.1:8080
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?the version, such as v1.2.3} url=${2:-} known=
out=$PWD/bin/verifiers work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
go -C hack build -buildvcs=false -o ../bin/pack-verifiers ./verifiers
bin/pack-verifiers "$out" "$version"

mkdir "$work/npm"
npm --prefix "$work/npm" install --offline --no-audit --no-fund --silent "$out"/*.tgz
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-index --disable-pip-version-check "$out"/*.whl
GOBIN=$work/go go install -buildvcs=false -ldflags "-X github.com/fairpact/fairpact/internal/platform/version.Version=${version#v}" ./services/fairpactctl
[[ $("$work/go/fairpactctl" --version) == *"${version#v}"* ]] || { echo "fairpactctl --version is not ${version#v}"; exit 1; }

cd "$work" # so that no verifier finds its sources
check() { # check NAME EXPECTED FILE ARGUMENTS…
  local name=$1 want=$2 file=$3; shift 3
  for verifier in "npm/node_modules/.bin/fairpact-verify $file" "venv/bin/fairpact-verify --bundle $file" "go/fairpactctl verify $file"; do
    local code=0
    $verifier "$@" > said 2>&1 || code=$?
    [ $code = "$want" ] || { echo "$verifier $* ($name) ends with $code, want $want:"; cat said; exit 1; }
  done
  echo "ok $name: $want"
}
for name in good rows-split rows-shapley signature tree-head certificate-bytes good-by-itself; do
  python3 - "$OLDPWD/e2e/testdata/bundles/$name.json" "$name" > key <<'PY'
import json, sys
case = json.load(open(sys.argv[1]))
json.dump(case["bundle"], open(sys.argv[2] + ".json", "w"))
print((case.get("pubkeys") or [""])[0])
PY
  key=$(cat key) known=${key:-$known}
  case $name in good-by-itself) want=4 ;; good | rows-*) want=0 ;; *) want=1 ;; esac
  check $name $want $name.json ${key:+--pubkey "$key"}
done
{ # the example of the package's README refuses a forged bundle and takes a good one
  echo "import { readFileSync } from 'node:fs'; const text = readFileSync('certificate-bytes.json', 'utf8');"
  sed -n '/^```js/,/^```/{/^```/d;p}' npm/node_modules/@fairpact/verify/README.md
} | sed "s/es256:…/$known/" > npm/example.mjs
! node npm/example.mjs 2> said && grep -q 'not issued under that key' said || { echo "the README's example took a forged bundle:"; cat said; exit 1; }
sed -i s/certificate-bytes.json/good.json/ npm/example.mjs
node npm/example.mjs
echo "ok the README's example"
echo '{"bundle_version": 1.5}' > unreadable.json
check unreadable 2 unreadable.json
[ -n "$url" ] || exit 0

ctl=go/fairpactctl
echo '{"items": ["car", "boat"]}' > params.json
echo '{"valuations": {"car": 70, "boat": 30}}' > 0.json
echo '{"valuations": {"car": 40, "boat": 60}}' > 1.json
$ctl deal create --base-url "$url" --algorithm split.v1 --mode open --label ann --label bob --params params.json --out deal.json > said
for party in 0 1; do
  $ctl seal $party.json --out $party.sealed > said
  $ctl deal commit $party.sealed --state deal.json --party $party > said
done
for party in 0 1; do $ctl deal reveal $party.sealed --state deal.json --party $party > said; done
$ctl deal certificate --state deal.json --party 1 --out played.json > said
key=$(curl -sS "$url/v1/status" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pubkey"])')
check "a deal of $url" 0 played.json --pubkey "$key"
check "the same without a key" 4 played.json
sed 's/"label":"ann"/"label":"eve"/' played.json > forged.json
! cmp -s played.json forged.json || { echo "nothing was forged"; exit 1; }
check "the same, forged" 1 forged.json --pubkey "$key"
