"""max.v1: the largest bid wins, and the lower index of equal bids."""

from algorithms import member, natural

ID, PARTIES = "max.v1", (2, 5)


def result(labels, params, inputs, beacon=None):
    member(params, "thing", str)
    bids = [natural(member(sealed, "bid", int), "a bid") for sealed in inputs]
    winner = bids.index(max(bids))
    return {"winner": winner, "label": labels[winner], "bid": bids[winner]}
