"""Checks of the closing: the digest of all commitments and seals of a deal, which the log got before the round of the seals.

/protocol, sections 3.2 and 9.1.
"""

import hashlib
import struct

import notes
import seats
import timelock

QUICKNET = ("52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
            "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
            "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a", 1692803367, 3)
QUICKNET_SEED = "f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e"


def chain_hash(chain):
    """Returns drand's hash of a chain, or None if a value is missing or impossible. Quicknet's seed and id are known."""
    known = {"genesis_seed": QUICKNET_SEED, "beacon_id": "quicknet"}
    if chain["chain_hash"] == QUICKNET[0] and not set(known) & set(chain):
        chain = {**chain, **known}
    try:
        key, seed, name = bytes.fromhex(chain["public_key"]), bytes.fromhex(chain["genesis_seed"]), chain["beacon_id"].encode()
        if len(key) != 96 or chain["public_key"] != key.hex() or chain["period"] < 1 or chain["genesis_time"] < 0:
            return None
        numbers = struct.pack(">IQ", chain["period"], chain["genesis_time"])
    except (KeyError, ValueError, struct.error):
        return None
    return hashlib.sha256(numbers + key + seed + (b"" if name == b"default" else name)).hexdigest()


def seal_times(bundle):
    """Returns (genesis, period) of the chain of the deal: those of drand quicknet if the deal declares it, else those of the chain in the closing, or None."""
    beacon = bundle["closing"]["beacon"] if "closing" in bundle else {"chain_hash": None}
    if QUICKNET[0] in ((bundle.get("declaration") or {}).get("beacon_chain"), beacon["chain_hash"]):
        return QUICKNET[2:]
    if "closing" not in bundle:
        return None
    return (beacon["genesis_time"], beacon["period"]) if beacon["genesis_time"] >= 0 and 1 <= beacon["period"] < 2**32 else None


def mark(deal_id):
    """Returns the first 8 bytes of every closing entry of the deal."""
    return hashlib.sha256(b"fairpact closing\0" + deal_id.encode()).digest()[:8]


def text(deal_id, declaration, chain, number, rows):
    """Returns the stated text. rows: (commitment, hash of the seal or None) of each party."""
    lines = ["fairpact closed commitments v1", deal_id, declaration, "%s %d" % (chain, number), str(len(rows))]
    lines += ["%s %s" % (commitment, seal or "-") for commitment, seal in rows]
    return "".join(line + "\n" for line in lines).encode()


def entry(deal_id, declaration, chain, number, rows):
    """Returns the 32 bytes of the log entry."""
    return mark(deal_id) + hashlib.sha256(text(deal_id, declaration, chain, number, rows)).digest()[:24]


def check(report, bundle, declaration, policy, signer_problem, included):
    """Adds the checks closing and closing_witnesses. declaration: {} if it is not the one of the certificate."""
    certificate, given = bundle["certificate"], bundle.get("closing")
    demands = policy is not None and policy.quorum != "none"
    committed = all(p["commitment"] is not None for p in certificate["parties"])
    if given is None:
        if demands and (seats.opened_by_seal(certificate["properties"]) or committed and "seals" in declaration):
            report.add("closing_witnesses", "inputs came from seals, but the bundle has no closing: nothing shows that the "
                       "commitments were fixed before the seals could be read")
        return
    report.closed = {"known": False, "by_seal": seats.opened_by_seal(certificate["properties"]), "unsealed": [i for i, seal in enumerate(given["seal_hashes"]) if seal is None], "detail": ""}
    problem, note, number, at = leaf_problem(report, given, certificate, declaration, included)
    if not problem:
        problem = signer_problem(note)
    report.add("closing", problem, "" if problem else
               "all commitments and seals are a leaf under the checkpoint of size %d in %s" % (note.size, note.origin))
    if not demands:
        return
    if problem:
        report.add("closing_witnesses", "not checked, because the check closing failed")
        return
    early, words = policy.early(note, at), "before round %d of %s, which was due at %d" % (number, given["beacon"]["chain_hash"], at)
    try:
        cosigned = policy.cosigned(early)
    except notes.Refused as e:
        report.add("closing_witnesses", str(e))
        return
    names = ", ".join(cosigned)
    if not policy.met(cosigned):
        unchecked = policy.unchecked(early)
        problem = ("no quorum cosigned the commitments %s: cosigned by [%s]. Whoever runs the service could read the seals first" % (words, names)
                   if not policy.met(cosigned + unchecked) else
                   "not checked, because the quorum depends on ML-DSA-44 cosignatures, which this program cannot verify: by %s; "
                   "see fairpactctl verify" % ", ".join(unchecked))
    else:
        report.closed["detail"] = "all commitments were in the log %s (cosigned by %s)" % (words, names)
    report.add("closing_witnesses", problem, "cosigned by %s %s; fairpactctl log audit --deal shows any other leaf that begins with %s" % (
        names, words, mark(certificate["deal_id"]).hex()))


def leaf_problem(report, given, certificate, declaration, included):
    """Returns (problem, note, round, time of the round), without a look at who signed the note."""
    wrong = lambda words: (words, None, 0, 0)
    if "commit_deadline" not in declaration:
        return wrong("not checked, because the round of the seals follows from the declaration, which is missing or wrong")
    beacon, seals = given["beacon"], given["seal_hashes"]
    chain = (beacon["chain_hash"], beacon["public_key"], beacon["genesis_time"], beacon["period"])
    if not 1 <= chain[3] < 2**32:
        return wrong("the beacon of the closing is malformed: its period is %d" % chain[3])
    if chain[0] == QUICKNET[0]:
        if chain != QUICKNET:
            return wrong("the closing names drand quicknet, but with another key or other times")
        report.closed["known"] = True
    if declaration["beacon_chain"] not in (None, chain[0]):
        return wrong("the closing is for beacon chain %s, but the deal declares another one" % chain[0])
    number = timelock.round_of(chain[2], chain[3], declaration["commit_deadline"])
    for flag in certificate["properties"]:
        if flag.startswith("opened-by-timelock:") and flag != "opened-by-timelock:%d" % number:
            return wrong("the declaration leads to round %d, but the certificate says %s" % (number, flag))
    parties = certificate["parties"]
    if len(seals) != len(parties):
        return wrong("the closing has %d seals for %d parties" % (len(seals), len(parties)))
    if any(p["commitment"] is None for p in parties):
        return wrong("the bundle has a closing, but a party never committed")
    try:
        index, path, note = notes.parse_proof(given["log_proof"])
    except notes.Refused as e:
        return wrong("its log_proof is malformed: %s" % e)
    leaf = entry(certificate["deal_id"], seats.digest_in(certificate["properties"])[0], chain[0], number,
                 [(p["commitment"], seal) for p, seal in zip(parties, seals)])
    if not included(leaf, index, path, note):
        return wrong("the commitments of the certificate and the seals of the closing are not leaf %d under its checkpoint: "
                     "a commitment or a seal was changed afterwards" % index)
    return None, note, number, chain[2] + (number - 1) * chain[3]
