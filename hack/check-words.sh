#!/usr/bin/env bash
# check-words.sh: texts for readers hold none of a few words that nobody searches
# for. `make lint` runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
words='tells? whether|mend(s|ed|ing)?|nobody of|farewell|be had|of until now|which is as well|the word of|anew|whence|thereof|henceforth'
if git ls-files -z -- '*.md' '*.yaml' '*.gotmpl' '*.tpl' '*.txt' '*.html' '*.js' '*.json' '*.py' '*.sql' '*.go' Makefile .ci ':!e2e/testdata/axe-core' |
  xargs -0 grep -nEio "(\S+ ){0,4}\b($words)\b.{0,30}"; then
  echo "use plain words: fix, correct, again, from, reports whether, the previous …"; exit 1
fi
