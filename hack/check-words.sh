#!/usr/bin/env bash
# check-words.sh: fails if a text contains one of a few archaic words or old promises, or if one of the
# last 30 commits has a subject of more than 72 characters. `make lint` runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
words='tells? whether|mend(s|ed|ing)?|nobody of|farewell|be had|of until now|which is as well|the word of|anew|whence|thereof|henceforth|goes on|as ever|(none|one|both) of both|of before'
if git ls-files -z -- '*.md' '*.yaml' '*.gotmpl' '*.tpl' '*.txt' '*.html' '*.js' '*.json' '*.py' '*.sql' '*.go' Makefile .ci ':!e2e/testdata/axe-core' |
  xargs -0 grep -nEio "(\S+ ){0,4}\b($words)\b.{0,30}"; then
  echo "the lines above contain archaic words; use plain words: fix, correct, again, from, reports whether, continues, the previous …"; exit 1
fi
# Promises that a certificate does not keep: /trust says what it proves, and to whom.
promises='without trust in the operator|without trusting this service|any(one|body) can (check|verify)|follows from the certificate alone|(stay|stays) sealed for ?ever|private for ?ever|nobody can know or steer|randomness that nobody controls|nothing to believe|trust nobody|strategy-proof|never shows (the|its) inputs'
if git ls-files -z -- '*.md' '*.txt' '*.html' '*.js' '*.json' '*.go' '*.yaml' ':!e2e/testdata' ':!.github/CONTRACT.md' | xargs -0 grep -nEio "(\S+ ){0,4}($promises).{0,30}"; then
  echo "the lines above promise more than a certificate proves: say to whom, and with which inputs"; exit 1
fi
long=$(git log --no-merges -n 30 --format=%s | grep -E '.{73,}' || true)
if [ -n "$long" ]; then echo "commit subjects of more than 72 characters:"; echo "$long"; exit 1; fi
