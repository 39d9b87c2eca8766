// Runs a deal of each algorithm over MCP with the official TypeScript client. Each party has its own connection, and knows
// only the base URL, its token and the deal's id. The party computes its commitment locally, and
// makes the call that each result names as the next step.
//
//   npm install && node play.mjs [http://127.0.0.1:8080]
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const base = process.argv[2] ?? process.env.BASE_URL ?? "http://127.0.0.1:8080";

class Agent {
  async connect() {
    this.client = new Client({ name: "fairpact-play", version: "0.0.0" });
    await this.client.connect(new StreamableHTTPClientTransport(new URL("/mcp", base)));
    this.tools = (await this.client.listTools()).tools;
    return this;
  }

  async call(name, args = {}) {
    const result = await this.client.callTool({ name, arguments: args });
    if (result.isError) throw new Error(result.content[0].text);
    if (!args.vectors) assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
    assert.match(result.content[1].text, /^NEXT: /);
    this.next = result._meta["fairpact/next"];
    return result.structuredContent;
  }

  close() {
    return this.client.close();
  }
}

// canonical returns the RFC 8785 form of a value without fractions.
function canonical(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  return `{${Object.keys(value).sort().map((k) => `${JSON.stringify(k)}:${canonical(value[k])}`).join(",")}}`;
}

// party follows the next steps until the certificate is verified, and returns the certificate.
async function party(dealID, token, input) {
  const salt = randomBytes(16).toString("hex");
  const commitment = "sha256:" + createHash("sha256").update(canonical(input) + salt).digest("hex");
  const mine = { deal_id: dealID, invite_token: token };
  const agent = await new Agent().connect();
  let certificate;
  const hashed = await agent.call("compute_commitment_tool", { input, salt });
  assert.equal(hashed.commitment, commitment);
  await agent.call("get_deal", mine);
  for (let last = "get_deal"; ; last = agent.next.tool) {
    const { tool, arguments: args } = agent.next;
    if (tool === "get_deal" && last === "get_deal") await new Promise((wake) => setTimeout(wake, 100));
    const fill = { commit_input: { commitment }, reveal_input: { input, salt }, verify_certificate: { certificate } }[tool] ?? {};
    if (args.invite_token) args.invite_token = token; // the next step has only a placeholder for the token
    const answer = await agent.call(tool, { ...args, ...fill });
    if (tool === "get_certificate") certificate = answer;
    if (tool === "verify_certificate") {
      assert.equal(answer.valid, true);
      assert.equal(answer.cert_id, certificate.cert_id);
      break;
    }
  }
  assert.equal(agent.next.tool, undefined);
  await agent.close();
  return certificate;
}

async function settle(algorithm, labels, params, inputs) {
  const initiator = await new Agent().connect();
  assert.equal(initiator.tools.length, 9);
  const { api_key } = await initiator.call("create_key");
  const now = Math.floor(Date.now() / 1000);
  const deal = await initiator.call("create_deal", {
    api_key, algorithm, party_labels: labels, algorithm_params: params, commit_deadline: now + 120, reveal_deadline: now + 240,
  });
  const certificates = await Promise.all(inputs.map((input, i) => party(deal.deal_id, deal.invite_tokens[i].token, input)));
  const view = await initiator.call("get_deal", { deal_id: deal.deal_id, api_key });
  for (const certificate of certificates) {
    assert.equal(certificate.outcome, "COMPUTED");
    assert.deepEqual(certificate.result, view.result);
  }
  await initiator.close();
  return view.result;
}

const catalogue = await new Agent().connect();
assert.match(catalogue.client.getInstructions(), /8\. verify_certificate/);
const { algorithms } = await catalogue.call("list_algorithms", { vectors: true });
// The instructions say how to compute a round after the reveals. This script uses a round that
// is already published, so that it does not wait for the draw.
const [, genesis, period] = catalogue.client.getInstructions().match(/published at (\d+) \+ \(N-1\)\*(\d+)/).map(Number);
const past = Math.floor((Date.now() / 1000 - genesis) / period) - 10;
await catalogue.close();

for (const { id, test_vectors: vectors } of algorithms) {
  const { input, expected_output: expected } = vectors.find((one) => one.expected_output && one.input.party_labels.length < 4);
  const { party_labels: labels, algorithm_params: params, party_inputs: inputs } = input;
  if (expected.beacon) params.beacon_round = past;
  const result = await settle(id, labels, params, inputs);
  if (expected.beacon) assert.equal(result.label, labels[result.winner]);
  else assert.deepEqual(result, expected);
  console.log(id.padEnd(10), JSON.stringify(result));
}
