#!/usr/bin/env bash
# release.sh VERSION: tags the commit as VERSION, with the version's section of .github/CHANGELOG.md as message. Push the tag,
# and the workflow `release` publishes it.
#   hack/release.sh v1.2.3
# release.sh VERSION REGISTRY: publishes the three images and the chart, and packs and checks the verifiers. Both forms refuse a version without a section.
#   hack/release.sh v1.2.3 ghcr.io/fairpact
# Each image is built for amd64 and arm64 and pushed under one tag, with signed bills of materials and provenance, and a signature. The
# chart is pushed with a signature. The chart's default values name these images by digest.
# The script needs `go` and `cosign` on the PATH. Log in first with `docker login` or `crane auth login`, and with
# `helm registry login`.
# ARCHS: the architectures (default "amd64 arm64"). COSIGN_FLAGS: flags of cosign; if empty, cosign signs without a key
# file (keyless), as in the workflow. HELM_FLAGS: flags of `helm push`, such as --plain-http for a registry on this machine.
#
# A trial on one machine needs a key of `cosign generate-key-pair`, and a registry that the cluster's nodes reach as localhost. This one
# keeps everything in memory:
#   go -C hack build -buildvcs=false -o ../bin/ github.com/google/go-containerregistry/cmd/crane && bin/crane registry serve --address :5000 &
#   HELM_FLAGS=--plain-http COSIGN_FLAGS="--key cosign.key --tlog-upload=false" hack/release.sh v0.1.0 localhost:5000/fairpact
#   helm install fairpact oci://localhost:5000/fairpact/charts/fairpact --version 0.1.0 --plain-http …
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?the version, such as v1.2.3} registry=${2:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "the version $version is not vMAJOR.MINOR.PATCH: give one such as v1.2.3" >&2; exit 1; }
notes=$(awk -v version="$version" '/^## /{on = $2 == version; next} on' .github/CHANGELOG.md)
[[ $notes =~ [^[:space:]] ]] || { echo "$version has no section in .github/CHANGELOG.md: write \"## $version\" and what changed" >&2; exit 1; }
if [ -z "$registry" ]; then
  [ -z "$(git status --porcelain)" ] || { echo "the tree has changes that are not committed: commit them first" >&2; exit 1; }
  git tag --annotate "$version" --cleanup=whitespace --message "Fairpact $version"$'\n\n'"$notes"
  echo "tagged $(git rev-parse --short HEAD) as $version; publish it with: git push origin $version"
  exit
fi
read -ra archs <<< "${ARCHS:-amd64 arm64}"
read -ra cosign_flags <<< "${COSIGN_FLAGS:-}"
read -ra helm_flags <<< "${HELM_FLAGS:-}"
hack/release-verifiers.sh "$version" # bin/verifiers: an npm package and a wheel, which nobody publishes yet
out=bin/release
rm -rf $out
mkdir -p $out
go -C hack build -buildvcs=false -o ../bin/build-images ./images
go -C hack build -buildvcs=false -o ../bin/ github.com/google/go-containerregistry/cmd/crane
go -C hack/charttools build -buildvcs=false -o ../../bin/ helm.sh/helm/v3/cmd/helm

for arch in "${archs[@]}"; do
  bin/build-images -out $out/$arch -arch $arch -tag "$version" -revision "$(git rev-parse HEAD)"
done
cp -r charts/fairpact $out/fairpact
values=$out/fairpact/values.yaml
sed -i "s|^  registry: \"\"$|  registry: $registry|; s|/blob/main/charts/|/blob/$version/charts/|" $values
# The predicate of https://slsa.dev/provenance/v1. Its builder is the workflow, whose identity also signs it; elsewhere it is this script.
repository=${GITHUB_SERVER_URL:-https://github.com}/${GITHUB_REPOSITORY:-fairpact/fairpact}
cat > $out/provenance.json <<END
{"buildDefinition": {"buildType": "$repository/blob/$version/hack/release.sh",
  "externalParameters": {"version": "$version", "registry": "$registry"},
  "resolvedDependencies": [{"uri": "git+$repository@refs/tags/$version", "digest": {"gitCommit": "$(git rev-parse HEAD)"}}]},
 "runDetails": {"builder": {"id": "${GITHUB_WORKFLOW_REF:+https://github.com/}${GITHUB_WORKFLOW_REF:-hack/release.sh}"},
  "metadata": {"invocationId": "${GITHUB_RUN_ID:+$repository/actions/runs/$GITHUB_RUN_ID/attempts/$GITHUB_RUN_ATTEMPT}"}}}
END
for name in deal-api:dealApi log-server:logServer deadline-worker:deadlineWorker; do
  image=${name%:*} section=${name#*:} parts=()
  for arch in "${archs[@]}"; do
    pushed=$(bin/crane push $out/$arch/"${image}_$version.tar" "$registry/$image:$version-$arch")
    cosign attest --yes "${cosign_flags[@]}" --type cyclonedx --predicate $out/$arch/"${image}_$version.sbom.json" "$pushed"
    cosign attest --yes "${cosign_flags[@]}" --type slsaprovenance1 --predicate $out/provenance.json "$pushed"
    parts+=(--manifest "$pushed")
  done
  pushed=$(bin/crane index append "${parts[@]}" --tag "$registry/$image:$version")
  cosign sign --yes --recursive "${cosign_flags[@]}" "$pushed"
  sed -i "/^$section:/,/digest: \"\"/s|digest: \"\"|digest: \"${pushed#*@}\"|" $values
  grep -q "${pushed#*@}" $values || { echo "$values has no line digest: \"\" in the section $section, so the image cannot be set" >&2; exit 1; }
done

bin/helm package $out/fairpact --version "${version#v}" --app-version "$version" --destination $out
chart=$(bin/helm push "${helm_flags[@]}" $out/"fairpact-${version#v}.tgz" "oci://$registry/charts" 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')
cosign sign --yes "${cosign_flags[@]}" "$registry/charts/fairpact@$chart"
sed -n '/^  registry:/p; / digest: "sha256/p' $values
echo "oci://$registry/charts/fairpact ${version#v} $chart"
