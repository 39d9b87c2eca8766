#!/usr/bin/env bash
# times.sh COMMAND... [-- COMMAND...]...: runs `go test` commands and shows their output.
# Each command is one argument. `--` separates lists: the lists run at the same time, and
# the commands of one list run one after another. At the end times.sh prints the time of
# each package, slowest first. times.sh fails if any command fails.
set -uo pipefail
said=$(mktemp)
trap 'rm -f "$said"' EXIT
run() {
  local command began failed=0
  for command; do
    began=$SECONDS
    echo "${command:0:100}…"
    bash -c "$command" 2>&1 | tee -a "$said"
    [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    echo "took $((SECONDS - began)) s: ${command:0:100}…" >>"$said"
  done
  return $failed
}
failed=0 list=() lists=()
for argument in "$@" --; do
  if [ "$argument" != -- ]; then list+=("$argument"); continue; fi
  run "${list[@]}" &
  lists+=($!) list=()
done
for pid in "${lists[@]}"; do wait "$pid" || failed=1; done
echo "--- time of each package ---"
awk '($1 == "ok" || $1 == "FAIL") && $3 ~ /^[0-9.]+s$/ { sub("github.com/fairpact/fairpact/", "", $2); t = $3; sub("s$", "", t); printf "%8.1f s  %s%s\n", t, $2, $1 == "FAIL" ? "  FAILED" : "" }
  $1 == "ok" && $3 == "(cached)" { sub("github.com/fairpact/fairpact/", "", $2); printf "%8.1f s  %s (cached)\n", 0, $2 }' "$said" | sort -rn
grep '^took ' "$said"
exit $failed
