"""split.v1: adjusted winner (Brams and Taylor) for two parties, proportional for more."""

from fractions import Fraction

from algorithms import member, natural

ID, PARTIES = "split.v1", (2, 16)
MOST_ITEMS, MOST_VALUES, MOST_BYTES = 1000, 4096, 200  # items; items × parties; bytes of an item


def result(labels, params, inputs, beacon=None):
    items = member(params, "items", list)
    if not items or not all(type(i) is str and i for i in items) or len(set(items)) != len(items):
        raise ValueError("`items` is not a list of different, non-empty strings")
    if len(items) > MOST_ITEMS or len(items) * len(labels) > MOST_VALUES or any(len(i.encode()) > MOST_BYTES for i in items):
        raise ValueError("`items` has more items or longer ones than a deal takes")
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
