"""The three algorithms in exact fractions, written only from the published description.

Each returns the certificate's `result`, or raises ValueError for inputs that no deal accepts.
"""

import hashlib
import re
from fractions import Fraction
from math import factorial


def result(algorithm, labels, params, inputs, beacon):
    """Returns the result. Returns None if a shapley.v1 party rejects, because the deal is then VOID. Only random.v1 uses the parameter beacon."""
    if algorithm == "split.v1":
        return split(labels, params, inputs)
    if algorithm == "shapley.v1":
        return None if rejectors(inputs) else shapley(labels, params)
    if member(params, "beacon_round", int) != member(beacon, "round", int):
        raise ValueError("the pinned beacon round is %s, but the deal declared round %s" % (beacon["round"], params["beacon_round"]))
    return draw(labels, beacon, nonce_digest(inputs))


def member(container, name, kind):
    if type(container) is not dict or type(container.get(name)) is not kind:
        raise ValueError("`%s` is missing or of the wrong type" % name)
    return container[name]


def natural(value, what):
    if type(value) is not int or value < 0:
        raise ValueError("%s is not a non-negative integer" % what)
    return value


# ---- split.v1: adjusted winner (Brams and Taylor) for two parties, proportional for more

def split(labels, params, inputs):
    items = member(params, "items", list)
    if not items or not all(type(i) is str and i for i in items) or len(set(items)) != len(items):
        raise ValueError("`items` is not a list of different, non-empty strings")
    values = []
    for party, sealed in enumerate(inputs):
        valuations = member(sealed, "valuations", dict)
        if set(valuations) - set(items):
            raise ValueError("party %d values an item that the deal does not have" % party)
        values.append([natural(valuations.get(i, 0), "a valuation of party %d" % party) for i in items])
    totals = [sum(row) for row in values]
    # own[p][i] is the value of item i to party p as a part of p's total; 0 if the total is 0.
    own = [[Fraction(v, total or 1) for v in row] for row, total in zip(values, totals)]
    shares = (adjusted_winner if len(labels) == 2 else proportional)(own, len(items))
    rows = []
    for party, label in enumerate(labels):
        parts = sum(shares[party][i] * own[party][i] * 10**18 // 1 for i in range(len(items)))
        rows.append({
            "party": party,
            "label": label,
            "items": [{"item": items[i], "share": str(s)} for i, s in enumerate(shares[party]) if s],
            "value_ppb": parts // 10**9,
        })
    return {"method": "adjusted_winner" if len(labels) == 2 else "proportional", "shares": rows}


def proportional(own, items):
    """Shares each item in proportion to its value to each party, and an item that nobody values equally."""
    columns = []
    for column in zip(*own):
        worth = sum(column)
        columns.append([v / worth if worth else Fraction(1, len(column)) for v in column])
    return list(zip(*columns))


def adjusted_winner(own, items):
    a, b = own
    first = [Fraction(1, 2)] * items  # party 0's share of each item
    valued = [i for i in range(items) if a[i] or b[i]]
    # By falling a/b, which is infinite if b is 0. sort() keeps the order of items with equal ratios.
    valued.sort(key=lambda i: (0, 0) if not b[i] else (1, -a[i] / b[i]))
    # Party 0 takes items from the top until both parties have equal parts of their totals. At that point
    # a+b, summed over the items that party 0 took, is 1. The variable left is the rest that this sum still lacks.
    left = Fraction(1) if sum(a) and sum(b) else None
    for i in valued:
        if left is None:  # one party values nothing: the other party gets every item with a value
            first[i] = Fraction(1 if a[i] else 0)
            continue
        first[i] = min(Fraction(1), left / (a[i] + b[i]))
        left -= first[i] * (a[i] + b[i])
    return [first, [1 - s for s in first]]


# ---- random.v1

def nonce_digest(inputs):
    """Returns the SHA-256 in hex of the XOR of all nonces, right-aligned to the longest."""
    total, longest = 0, 0
    for party, sealed in enumerate(inputs):
        nonce = member(sealed, "nonce", str)
        if not re.fullmatch("[0-9a-fA-F]{0,1024}", nonce):
            raise ValueError("the nonce of party %d is not 0 to 1024 hex digits" % party)
        total ^= int(nonce or "0", 16)
        longest = max(longest, (len(nonce) + 1) // 2)
    return hashlib.sha256(total.to_bytes(longest, "big")).hexdigest()


def draw(labels, beacon, digest):
    """Returns the whole result from the beacon and the digest of the nonces. A certificate shows both."""
    for name, digits in (("chain_hash", 64), ("randomness", 64), ("signature", 96)):
        if not re.fullmatch("[0-9a-f]{%d}" % digits, member(beacon, name, str)):
            raise ValueError("beacon.%s is not %d lower-case hex digits" % (name, digits))
    if hashlib.sha256(bytes.fromhex(beacon["signature"])).hexdigest() != beacon["randomness"]:
        raise ValueError("beacon.randomness is not SHA-256 of beacon.signature")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError("nonce_digest is not 64 lower-case hex digits")
    number = natural(member(beacon, "round", int), "beacon.round")
    seed = hashlib.sha256(
        b"fairpact/random.v1\x00" + bytes.fromhex(beacon["chain_hash"]) + number.to_bytes(8, "big")
        + bytes.fromhex(beacon["randomness"]) + bytes.fromhex(digest)
    ).digest()
    tickets = [hashlib.sha256(seed + i.to_bytes(4, "big")).hexdigest() for i in range(len(labels))]
    winner = tickets.index(min(tickets))
    pinned = {name: beacon[name] for name in ("chain_hash", "round", "randomness", "signature")}
    return {"winner": winner, "label": labels[winner], "ticket": tickets[winner],
            "nonce_digest": digest, "beacon": pinned}


# ---- shapley.v1

def rejectors(inputs):
    """Returns the parties that answered accept:false, ascending."""
    return [i for i, sealed in enumerate(inputs) if not member(sealed, "accept", bool)]


def shapley(labels, params):
    n = len(labels)
    if n > 8:
        raise ValueError("shapley.v1 takes at most 8 parties")
    worth = coalitions(labels, member(params, "coalition_values", dict))
    total = worth.get(2**n - 1, 0)
    exact = []
    for i in range(n):
        weighted = 0  # sum of |S|! (n-|S|-1)! (v(S with i) - v(S)) over the coalitions S without i
        for s in range(2**n):
            if not s >> i & 1:
                size = bin(s).count("1")
                weighted += factorial(size) * factorial(n - size - 1) * (worth.get(s | 1 << i, 0) - worth.get(s, 0))
        exact.append(Fraction(weighted, factorial(n)))
    payouts = [share // 1 for share in exact]
    by_remainder = sorted(range(n), key=lambda i: payouts[i] - exact[i])
    for i in by_remainder[: total - sum(payouts)]:
        payouts[i] += 1
    rows = [{"party": i, "label": labels[i], "share": str(exact[i]), "payout": payouts[i]} for i in range(n)]
    return {"total": total, "shares": rows}


def coalitions(labels, values):
    """Returns the value of each coalition by the bit set of its members. A key of values is a sorted list of members, written
    with labels or with party indexes. All keys use the same kind."""
    for names in (labels, [str(i) for i in range(len(labels))]):
        bits = {name: 1 << i for i, name in enumerate(names)}
        keys = {key: key.split(",") for key in values}
        if all(set(k) <= set(bits) and k == sorted(set(k)) for k in keys.values()):
            return {sum(bits[m] for m in k): natural(values[key], "a coalition value") for key, k in keys.items()}
    raise ValueError("a key of coalition_values is not a sorted list of labels or party indexes")
