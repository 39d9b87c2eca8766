#!/bin/sh
# Tests a running stack with the official MCP tools: the TypeScript client, the
# conformance suite and the inspector's command line. Run `npm install` first.
#
#   npm run check [-- http://127.0.0.1:8080]
#
# Four server scenarios of the conformance suite apply. The other scenarios need features
# that this stateless server with nine tools does not have: the suite's own tools, prompts,
# resources, logging, completion, sampling, elicitation or an SSE stream.
set -eu
base=${1:-http://127.0.0.1:8080}
cd "$(dirname "$0")"
PATH=$PWD/node_modules/node/bin:$PWD/node_modules/.bin:$PATH

echo "== TypeScript client: a deal of each algorithm"
node play.mjs "$base"

echo "== conformance suite"
port=${base##*:}
for scenario in server-initialize ping tools-list dns-rebinding-protection; do
  # The DNS rebinding scenario only works with the name localhost.
  said=$(conformance server --url "http://localhost:$port/mcp" --scenario "$scenario" 2>&1) || { echo "$said"; exit 1; }
  passed=$(echo "$said" | grep -E '^Passed: [1-9][0-9]*/[0-9]+, 0 failed') || { echo "$said"; exit 1; }
  echo "$scenario: $passed"
done

echo "== inspector: all nine tools"
HOME=$(mktemp -d); export HOME
trap 'rm -rf "$HOME"' EXIT
inspect() { mcp-inspector --cli "$base/mcp" --transport http "$@" 2>/dev/null; }
# take EXPRESSION prints the value of a JavaScript expression. In the expression, r is the tool's
# result, read from stdin.
take() { node -e 'const all = JSON.parse(require("fs").readFileSync(0)); const top = all.result ?? all; const r = top.structuredContent ?? top; console.log(eval(process.argv[1]))' "$1"; }
tool() { name=$1; shift; inspect --method tools/call --tool-name "$name" "$@"; }

test "$(inspect --method tools/list | take r.tools.length)" = 9
key=$(tool create_key | take r.api_key)
test "$(tool list_algorithms | take r.algorithms.length)" -gt 0
now=$(date +%s)
deal=$(tool create_deal --tool-arg "api_key=$key" algorithm=shapley.v1 'party_labels=["ann","bob"]' commit_deadline=$((now + 300)) \
  reveal_deadline=$((now + 600)) 'algorithm_params={"coalition_values":{"ann":60,"ann,bob":120}}' | take 'r.deal_id + " " + r.invite_tokens.map(i => i.token).join(" ")')
set -- $deal
id=$1; shift
salt='"00112233445566778899aabbccddeeff"'
commitment=$(tool compute_commitment_tool --tool-arg 'input={"accept":true}' "salt=$salt" | take r.commitment)
for token in "$@"; do tool commit_input --tool-arg "deal_id=$id" "invite_token=$token" "commitment=$commitment" | take r.state; done
for token in "$@"; do tool reveal_input --tool-arg "deal_id=$id" "invite_token=$token" 'input={"accept":true}' "salt=$salt" | take r.state; done
tool get_deal --tool-arg "deal_id=$id" "api_key=$key" | take r.state | grep -xE "COMPUTED|CERTIFIED"  # CERTIFIED within a second if the stack has witnesses
certificate=$(tool get_certificate --tool-arg "deal_id=$id" "invite_token=$1" | take r.cert_id)
test "$(tool verify_certificate --tool-arg "cert_id=$certificate" | take r.valid)" = true
echo "all nine tools listed and called; certificate $certificate is valid"
