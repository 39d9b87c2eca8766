#!/usr/bin/env bash
# check-words.sh: fails if a text contains one of a few archaic words, or if one of the
# last 30 commits has a subject of more than 72 characters. `make lint` runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
words='tells? whether|mend(s|ed|ing)?|nobody of|farewell|be had|of until now|which is as well|the word of|anew|whence|thereof|henceforth|goes on|as ever|(none|one|both) of both|of before'
if git ls-files -z -- '*.md' '*.yaml' '*.gotmpl' '*.tpl' '*.txt' '*.html' '*.js' '*.json' '*.py' '*.sql' '*.go' Makefile .ci ':!e2e/testdata/axe-core' |
  xargs -0 grep -nEio "(\S+ ){0,4}\b($words)\b.{0,30}"; then
  echo "the lines above contain archaic words; use plain words: fix, correct, again, from, reports whether, continues, the previous …"; exit 1
fi
long=$(git log --no-merges -n 30 --format=%s | grep -E '.{73,}' || true)
if [ -n "$long" ]; then echo "commit subjects of more than 72 characters:"; echo "$long"; exit 1; fi
