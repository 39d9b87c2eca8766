"""The shapes of a certificate, a tree head, a status, a key set and a bundle, and contradictions inside a certificate.

A rule takes a value and returns what is wrong with it, or None.
"""

import re

import algorithms
import seats
import signatures

MOST_KEYS = 1000  # the most keys that a deployment may publish; the limit bounds the time of a verification


def integer(value):
    return None if type(value) is int and value >= 0 else "is not a non-negative integer"


def string(value):
    return None if type(value) is str and value else "is not a non-empty string"


def thing(value):
    return None if type(value) is dict else "is not an object"


def salt(value):
    return None if value is None or type(value) is str else "is not a string"


def text(value):
    return None if type(value) is str else "is not a string"


def null(value):
    return None if value is None else "is not null"


def pattern(expression, what):
    return lambda v: None if type(v) is str and re.fullmatch(expression, v) else "is not " + what


def one_of(*allowed):
    return lambda v: None if type(v) is str and v in allowed else "is not one of " + ", ".join(allowed)


def nullable(rule):
    return lambda v: None if v is None else rule(v)


def array(rule, most=None):
    def check(value):
        if type(value) is not list:
            return "is not an array"
        if most is not None and len(value) > most:
            return "has %d elements, but at most %d are allowed" % (len(value), most)
        return next(("[%d] %s" % (i, rule(v)) for i, v in enumerate(value) if rule(v)), None)
    return check


def record(extra=False, optional=(), **members):
    def check(value):
        if type(value) is not dict:
            return "is not an object"
        for name in members:
            if name not in value and name not in optional:
                return "lacks `%s`" % name
            if name in value and members[name](value[name]):
                return "`%s` %s" % (name, members[name](value[name]))
        unknown = sorted(set(value) - set(members))
        return "has the unknown member `%s`" % unknown[0] if unknown and not extra else None
    return check


HASH = pattern("[0-9a-f]{64}", "64 lower-case hex digits")
SHA256 = pattern("sha256:[0-9a-f]{64}", "`sha256:` and 64 lower-case hex digits")
SIGNATURE = pattern(signatures.SIGNATURE_FORM, "`es256:` or `ed25519:`, followed by 128 lower-case hex digits")
CERTIFICATE = record(
    cert_version=one_of("1"),
    cert_id=string,
    deal_id=string,
    outcome=one_of("COMPUTED", "VOID"),
    algorithm=one_of(*algorithms.KNOWN),
    mode=one_of("sealed", "open"),
    retention=one_of("standard", "purge"),
    parties=array(record(index=integer, label=string, commitment=nullable(SHA256), attested_by=string)),
    input_root=nullable(string),  # its form has a check of its own
    result=nullable(thing),
    void_flakers=nullable(array(integer)),
    properties=array(string),
    timing=record(created_at=integer, commits_closed_at=nullable(integer),
                  reveals_closed_at=nullable(integer), computed_at=nullable(integer)),
    log_proof=record(tree_size=integer, leaf_index=integer, inclusion_path=array(HASH)),
    tee_attestation=null,
    signature=SIGNATURE,
)
TREE_HEAD = record(tree_size=integer, root_hash=HASH, signature=SIGNATURE)
STATUS = record(extra=True, pubkey=string, legacy_pubkeys=array(string, MOST_KEYS - 1))
KEY_SET = record(keys=array(record(optional=("retired_at", "tree_size"), pubkey=string,
                                   state=one_of("current", "next", "retired"), retired_at=integer, tree_size=integer),
                           MOST_KEYS))
DECLARATION = record(
    optional=("seals", "audience", "acted_by", "title", "message"), seals=one_of("required"), audience=one_of("public"), acted_by=one_of("initiator"), title=string, message=string, algorithm=string, algorithm_params=thing, beacon_chain=nullable(HASH), commit_deadline=integer, mode=string,
    party_keys=array(nullable(string)), party_labels=array(string), retention=string, reveal_deadline=integer,
)
INPUTS = array(nullable(record(optional=("salt",), input=thing, salt=salt)))
BEACON = record(optional=("genesis_seed", "beacon_id"), chain_hash=HASH, public_key=string, genesis_time=integer, period=integer, genesis_seed=HASH, beacon_id=string)
BUNDLE = record(
    optional=("log_proof", "declaration", "beacon", "closing", "own_input", "openings"), bundle_version=one_of("1"),
    certificate=thing, tree_head=thing, keys=thing, log_proof=string, declaration=DECLARATION,
    beacon=BEACON, closing=record(beacon=BEACON, seal_hashes=array(nullable(HASH)), log_proof=string),
    own_input=record(optional=("input", "salt", "input_path"), party=integer, input=thing, salt=text, input_path=array(HASH)),
    openings=INPUTS,
)
OPENING = record(extra=True, optional=("salt",), deal_id=string, party=integer, input=thing, salt=salt)


def key_set_problem(document):
    """Returns what is wrong with an answer of /v1/pubkeys, or None."""
    bad = KEY_SET(document)
    if bad:
        return bad
    keys, labels = document["keys"], set()
    for i, key in enumerate(keys):
        if key["state"] != "retired" and ("retired_at" in key or "tree_size" in key):
            return "`keys` [%d] is %s, but only a retired key may have `retired_at` or `tree_size`" % (i, key["state"])
        if key["pubkey"] in labels:
            return "`keys` [%d] repeats a key" % i
        labels.add(key["pubkey"])
    current = sum(key["state"] == "current" for key in keys)
    return None if current == 1 else "has %d current keys instead of one" % current


def contradictions(c):
    """Returns contradictions between the members of a well-formed certificate. Other checks verify the content of the member `result`."""
    computed, n, flakers = c["outcome"] == "COMPUTED", len(c["parties"]), c["void_flakers"]
    missing = [i for i, p in enumerate(c["parties"]) if p["commitment"] is None]
    timing, flags = c["timing"], c["properties"]
    low, high = algorithms.KNOWN[c["algorithm"]].PARTIES
    claims = [
        (low <= n <= high, "%s takes %d to %d parties, not %d" % (c["algorithm"], low, high, n)),
        ([p["index"] for p in c["parties"]] == list(range(n)), "party indexes are not 0 to n-1 in order"),
        ((c["result"] is None) != (flakers is None), "exactly one of result and void_flakers must be set"),
        ((c["result"] is not None) == computed, "result must be set if and only if outcome is COMPUTED"),
        ((timing["computed_at"] is not None) == computed, "computed_at must be set if and only if outcome is COMPUTED"),
        ((timing["commits_closed_at"] is not None) == (not missing), "commits_closed_at must be set if and only if every party has a commitment"),
        ((timing["reveals_closed_at"] is not None) == (c["input_root"] is not None),
         "reveals_closed_at must be set if and only if input_root is set"),
        (c["input_root"] is None or not missing, "input_root is set although a party never committed"),
        (len(set(flags)) == len(flags), "a property occurs twice"),
        ("inputs-purged" not in flags or c["retention"] == "purge", "properties contains inputs-purged, but retention is not purge"),
        ("beacon-verified" not in flags or (computed and algorithms.draws(c["algorithm"])),
         "properties contains beacon-verified, but the result was not drawn with a beacon"),
        (not seats.opened_by_seal(flags) or "inputs-committed-before-reveal" in flags,
         "properties contains opened-by-timelock, but no input was revealed"),
    ]
    if seats.digest_in(flags)[1]:
        claims.append((False, seats.digest_in(flags)[1]))
    reasons = [flag for flag in flags if flag.startswith("void:")]
    if reasons:
        claims += [
            (len(reasons) == 1 and not computed, "properties contains more than one reason for a VOID, or contains one although outcome is COMPUTED"),
            ((reasons[0] == "void:missed-commit") == bool(missing), "the reason for the VOID must be void:missed-commit if and only if a party never committed"),
            (reasons[0] != "void:missed-reveal" or c["input_root"] is None, "properties contains void:missed-reveal although all parties have revealed"),
            (reasons[0] != "void:rejected" or algorithms.rejects(c["algorithm"]),
             "properties contains void:rejected, but this algorithm has no rejection"),
            (reasons[0] != "void:missed-commit" or "inputs-committed-before-reveal" not in flags,
             "properties contains void:missed-commit and inputs-committed-before-reveal, but nobody can reveal before all parties commit"),
        ]
    if flakers is not None:
        claims += [
            (flakers == sorted(set(flakers)) and flakers, "void_flakers is empty, unsorted or repeats a party"),
            (all(i < n for i in flakers), "void_flakers names a party that does not exist"),
            (not missing or flakers == missing, "void_flakers are not the parties that never committed"),
            (c["input_root"] is None or algorithms.rejects(c["algorithm"]), "void_flakers is set although all parties have revealed and this algorithm has no rejection"),
        ]
    return [text for holds, text in claims if not holds]
