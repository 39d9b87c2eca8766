"""Checks the receipt of a timelock seal: the proof that a party committed and sealed in time, and to which input.

/protocol, section 3.2.
"""

import hashlib
import re

import algorithms
import closing
import jcs
import shape
import signatures
import timelock

TEXT = re.compile(r"fairpact seal receipt v1\nhttps?://[^\s/]+\n([A-Za-z0-9_-]{1,100})\n(0|[1-9][0-9]{0,15})\n(sha256:[0-9a-f]{64})\n"
                  r"([0-9a-f]{64})\n([0-9a-f]{64})\n([1-9][0-9]{0,15})\n(0|[1-9][0-9]{0,15})\n")
NAMED = shape.record(extra=True, deal_id=shape.string, parties=shape.array(shape.record(extra=True, commitment=shape.nullable(shape.SHA256))),
                     algorithm=shape.string,
                     void_flakers=shape.nullable(shape.array(shape.integer)), properties=shape.array(shape.string))
ABSENT = ("void:missed-commit", "void:missed-reveal")


def chain_of(file):
    """Returns (hash, public key, genesis, period) of the file's chain: drand quicknet, unless the file names a development chain."""
    beacon = file.get("development_beacon")
    if beacon is None:
        return closing.QUICKNET
    bad = shape.BEACON(beacon)
    if bad:
        raise jcs.Refused("development_beacon %s" % bad)
    if beacon["chain_hash"] == closing.QUICKNET[0]:
        return closing.QUICKNET
    if closing.chain_hash(beacon) != beacon["chain_hash"]:  # else a party could prove an opening by a key of its own
        raise jcs.Refused("development_beacon: its key, times, seed and id do not hash to its chain_hash")
    return beacon["chain_hash"], beacon["public_key"], beacon["genesis_time"], beacon["period"]


def parsed(file):
    """Returns the values of a receipt file's text, or raises jcs.Refused."""
    signed = file.get("receipt") if type(file) is dict else None
    if type(signed) is not dict or not all(type(v) is str for v in (file.get("seal"), signed.get("text"), signed.get("signature"))):
        raise jcs.Refused("not a receipt file {seal, receipt: {text, signature}}, or the service signed no receipt")
    found = TEXT.fullmatch(signed["text"])
    if not found or any(int(found[i]) > jcs.MAX_INTEGER for i in (2, 6, 7)):
        raise jcs.Refused("the text is not the receipt of a seal")
    return {"deal_id": found[1], "party": int(found[2]), "commitment": found[3], "seal_hash": found[4],
            "chain": found[5], "round": int(found[6]), "time": int(found[7])}


def check(report, file, keys, signature):
    """Adds the checks of a receipt file. signature: that of the round, in hex. Returns the sealed input, or None."""
    chain, stated, signed = chain_of(file), parsed(file), file["receipt"]
    due, hashed = chain[2] + (stated["round"] - 1) * chain[3], hashlib.sha256(file["seal"].encode()).hexdigest()
    report.add("receipt", "it is for the seal with hash %s, not %s" % (stated["seal_hash"], hashed) if hashed != stated["seal_hash"] else
               "it is for another beacon chain" if stated["chain"] != chain[0] else
               "it was issued at %d, and the round was due at %d" % (stated["time"], due) if stated["time"] >= due else None,
               "party %(party)d of deal %(deal_id)s sealed at %(time)d" % stated)
    by = next((k for k in keys if not signatures.key_problem(k) and signatures.verify(k, signed["text"].encode(), signed["signature"])), None)
    report.add("receipt_signature", by is None and "no key of the deployment signed the receipt", "by %s" % by)
    if not report.valid():
        report.add("seal", "not opened, because the receipt proves nothing")
        return None
    sealed = None
    try:
        plaintext = timelock.opened(file["seal"], chain[0], chain[1], stated["round"], signature)
        sealed, _ = timelock.opening(plaintext, stated["deal_id"], stated["party"], stated["commitment"])
        problem = None
    except (timelock.Refused, timelock.NotOpened) as e:
        problem = "it does not prove a reveal, so the deployment may name party %d: %s" % (stated["party"], e)
    report.add("seal", problem, "round %d opens it to the commitment" % stated["round"])
    return sealed


def contradiction(stated, sealed, document):
    """Returns how a certificate or bundle contradicts the receipt, or None. sealed: the input to which the seal opens, or None if it does not."""
    certificate = document.get("certificate", document) if type(document) is dict else document
    bad = NAMED(certificate)
    if bad:
        return "the certificate " + bad
    party, rows = stated["party"], certificate["parties"]
    if certificate["deal_id"] != stated["deal_id"] or party >= len(rows):
        return "the certificate is of another deal"
    closed = document.get("closing") if document is not certificate else None
    hashes = closed.get("seal_hashes") if type(closed) is dict else None
    if type(hashes) is list and (party >= len(hashes) or hashes[party] != stated["seal_hash"]):
        return "the bundle is false: its closing does not show the seal of party %d" % party
    if rows[party]["commitment"] != stated["commitment"]:
        return "the certificate is false: it does not show the commitment of party %d" % party
    if party not in (certificate["void_flakers"] or []):
        return None
    if any(p in ABSENT for p in certificate["properties"]):
        return "the certificate is false: it names party %d for an absence" % party
    if sealed is not None and not algorithms.rejected(certificate["algorithm"], sealed):
        return "the certificate is false: it names party %d, whose sealed input does not reject" % party
    return None
