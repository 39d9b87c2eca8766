"""shapley.v1: the Shapley value of a declared game, rounded to payouts."""

from fractions import Fraction
from math import factorial

from algorithms import member, natural

ID, PARTIES = "shapley.v1", (2, 8)
ACCEPTED = {"accept": True}


def rejectors(inputs):
    """Returns the parties that answered accept:false, ascending."""
    return [i for i, sealed in enumerate(inputs) if not member(sealed, "accept", bool)]


def result(labels, params, inputs, beacon=None):
    n = len(labels)
    if len(set(labels)) < n or any("," in label for label in labels):
        raise ValueError("a label occurs twice or holds a comma")
    worth = coalitions(labels, member(params, "coalition_values", dict))
    if rejectors(inputs):
        return None
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
