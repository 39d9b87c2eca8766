"""random.v1: the nonces of all parties and a public beacon draw one party."""

import hashlib
import re

from algorithms import member

ID, PARTIES = "random.v1", (2, 10000)


def result(labels, params, inputs, beacon):
    if member(params, "beacon_round", int) != member(beacon, "round", int):
        raise ValueError("the pinned beacon round is %s, but the deal declared round %s" % (beacon["round"], params["beacon_round"]))
    return draw(labels, beacon, nonce_digest(inputs))


def redraw(labels, shown):
    digest = member(shown, "nonce_digest", str)
    return draw(labels, member(shown, "beacon", dict), digest)


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
    number = member(beacon, "round", int)
    if number < 1:
        raise ValueError("beacon.round is %d, but the first round is 1" % number)
    seed = hashlib.sha256(
        b"fairpact/random.v1\x00" + bytes.fromhex(beacon["chain_hash"]) + number.to_bytes(8, "big")
        + bytes.fromhex(beacon["randomness"]) + bytes.fromhex(digest)
    ).digest()
    tickets = [hashlib.sha256(seed + i.to_bytes(4, "big")).hexdigest() for i in range(len(labels))]
    winner = tickets.index(min(tickets))
    pinned = {name: beacon[name] for name in ("chain_hash", "round", "randomness", "signature")}
    return {"winner": winner, "label": labels[winner], "ticket": tickets[winner],
            "nonce_digest": digest, "beacon": pinned}
