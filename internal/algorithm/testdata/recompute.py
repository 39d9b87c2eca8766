#!/usr/bin/env python3
"""Recomputes the published vectors without the Go code.

    python3 internal/algorithm/testdata/recompute.py          compare; exit 1 on a difference
    python3 internal/algorithm/testdata/recompute.py --write  fill in expected_output

It needs Python 3.9 and nothing else. Where there is a choice it goes another
way than the Go code: fractions instead of integers over a common denominator,
the Shapley value by all orders of arrival instead of by coalitions, the cut of
adjusted winner by trying every item.
"""

import hashlib
import json
import pathlib
import sys
from fractions import Fraction
from itertools import permutations
from math import floor, inf

VECTORS = pathlib.Path(__file__).resolve().parent.parent / "vectors"

# Rounds of drand quicknet, for --write: a vector without expected_output names only the round.
CHAIN = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
SIGNATURES = {
    1000: "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39",
    12040883: "929906c959032ab363c9f26570d215d66f5c06cb0c44fe508c12bb5839f04ec895bb6868e5b9ff13ab289bdb5266b394",
}


def adjusted_winner(values):
    """shares[party][item] for two parties that both value something; every item is valued by one of them."""
    scaled = [[Fraction(v, sum(own)) for v in own] for own in values]
    a, b = scaled
    order = sorted(range(len(a)), key=lambda i: (-(a[i] / b[i]) if b[i] else -inf, i))
    for at, cut in enumerate(order):
        # a's part above the cut + f·a[cut] = b's part below the cut + (1−f)·b[cut]
        above = sum(a[i] for i in order[:at])
        below = sum(b[i] for i in order[at + 1:])
        f = (below + b[cut] - above) / (a[cut] + b[cut])
        if 0 <= f <= 1:
            first = {i: Fraction(1) for i in order[:at]} | {cut: f}
            shares = [[first.get(i, Fraction(0)) for i in range(len(a))]]
            shares.append([1 - s for s in shares[0]])
            gets = [sum(s * v for s, v in zip(shares[p], scaled[p])) for p in (0, 1)]
            assert gets[0] == gets[1] >= Fraction(1, 2), gets
            return shares
    raise AssertionError("no cut")


def split(labels, params, inputs):
    items = params["items"]
    n = len(labels)
    values = [[one["valuations"].get(item) or 0 for item in items] for one in inputs]
    wanted = [i for i in range(len(items)) if any(own[i] for own in values)]
    shares = [[Fraction(1, n)] * len(items) for _ in labels]
    payers = [p for p in range(n) if sum(values[p])]
    if n == 2 and len(payers) == 2:
        part = adjusted_winner([[own[i] for i in wanted] for own in values])
        for at, i in enumerate(wanted):
            for p in (0, 1):
                shares[p][i] = part[p][at]
    else:
        for i in wanted:
            scaled = [Fraction(values[p][i], sum(values[p])) if p in payers else Fraction(0) for p in range(n)]
            for p in range(n):
                shares[p][i] = scaled[p] / sum(scaled)
    out = []
    for p, label in enumerate(labels):
        total = sum(values[p])
        ppb = sum(floor(10**18 * s * Fraction(v, total)) for s, v in zip(shares[p], values[p])) // 10**9 if total else 0
        out.append({
            "party": p,
            "label": label,
            "items": [{"item": item, "share": str(s)} for item, s in zip(items, shares[p]) if s],
            "value_ppb": ppb,
        })
    return {"method": "adjusted_winner" if n == 2 else "proportional", "shares": out}


def random(labels, params, inputs, beacon):
    digits = [one["nonce"] for one in inputs]
    longest = max((len(d) + 1) // 2 for d in digits)
    xor = 0
    for d in digits:
        xor ^= int(d or "0", 16)
    nonce_digest = hashlib.sha256(xor.to_bytes(longest, "big")).digest()
    assert beacon["round"] == params["beacon_round"]
    assert hashlib.sha256(bytes.fromhex(beacon["signature"])).hexdigest() == beacon["randomness"]
    seed = hashlib.sha256(b"".join([
        b"fairpact/random.v1\0",
        bytes.fromhex(beacon["chain_hash"]),
        beacon["round"].to_bytes(8, "big"),
        bytes.fromhex(beacon["randomness"]),
        nonce_digest,
    ])).digest()
    tickets = [hashlib.sha256(seed + i.to_bytes(4, "big")).hexdigest() for i in range(len(labels))]
    winner = tickets.index(min(tickets))
    return {"winner": winner, "label": labels[winner], "ticket": tickets[winner], "nonce_digest": nonce_digest.hex(), "beacon": beacon}


def shapley(labels, params, inputs):
    if not all(one["accept"] for one in inputs):
        return None
    n = len(labels)
    table = params["coalition_values"]
    names = labels
    if not all(name in labels for key in table for name in key.split(",")):
        names = [str(i) for i in range(n)]
    worth = {frozenset(names.index(name) for name in key.split(",")): value for key, value in table.items()}
    sums, orders = [0] * n, 0
    for order in permutations(range(n)):
        orders += 1
        before, there = 0, frozenset()
        for player in order:
            there |= {player}
            after = worth.get(there, 0)
            sums[player] += after - before
            before = after
    shares = [Fraction(s, orders) for s in sums]
    total = worth.get(frozenset(range(n)), 0)
    assert sum(shares) == total
    payouts = [floor(s) for s in shares]
    for i in sorted(range(n), key=lambda i: (-(shares[i] - floor(shares[i])), i))[:total - sum(payouts)]:
        payouts[i] += 1
    return {"total": total, "shares": [
        {"party": i, "label": labels[i], "share": str(shares[i]), "payout": payouts[i]} for i in range(n)]}


def expected(vector):
    deal = vector["input"]
    arguments = deal["party_labels"], deal["algorithm_params"], deal["party_inputs"]
    if vector["algorithm"] == "split.v1":
        return split(*arguments)
    if vector["algorithm"] == "shapley.v1":
        return shapley(*arguments)
    beacon = (vector.get("expected_output") or {}).get("beacon")
    if beacon is None:
        signature = SIGNATURES[deal["algorithm_params"]["beacon_round"]]
        beacon = {"chain_hash": CHAIN, "round": deal["algorithm_params"]["beacon_round"],
                  "randomness": hashlib.sha256(bytes.fromhex(signature)).hexdigest(), "signature": signature}
    return random(*arguments, beacon)


def main():
    write = "--write" in sys.argv[1:]
    checked = wrong = 0
    for path in sorted(VECTORS.glob("*.json")):
        vectors = json.loads(path.read_text(encoding="utf-8"))
        for vector in vectors:
            got = expected(vector)
            checked += 1
            if write:
                vector["expected_output"] = got
            elif got != vector["expected_output"]:
                wrong += 1
                print(f"{vector['vector_id']}: expected_output is not what is computed:\n{json.dumps(got, ensure_ascii=False)}")
        if write:
            path.write_text(json.dumps(vectors, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(f"{checked} vectors, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
