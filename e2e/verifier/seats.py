"""Who committed: the declaration of a deal, the bytes that a seat key signs, and attested_by."""

import hashlib
import re

import algorithms
import jcs
import signatures
import timelock

MOST_NAMED = 8
DOMAIN = "fairpact seat v1"
KEY = "(es256:[0-9a-f]{66}|ed25519:[0-9a-f]{64})"
FORM = re.compile("initiator(?: %s)?|(declared|brought) %s ((?:es256|ed25519):[0-9a-f]{128}) (https?://[!-.0-~]{1,255})" % (KEY, KEY))
PROPERTY = "declaration-sha256:"


def digest(declaration):
    return hashlib.sha256(jcs.encode(declaration)).hexdigest()


def digest_in(properties):
    """Returns (digest, problem): the declaration's digest in a certificate's properties, and what is wrong with it. Each may be None."""
    named = [p[len(PROPERTY):] for p in properties if p.startswith(PROPERTY)]
    if len(named) > 1:
        return None, "the properties name two declarations"
    if named and not re.fullmatch("[0-9a-f]{64}", named[0]):
        return None, "declaration-sha256 is not 64 lower-case hex digits"
    return (named[0] if named else None), None


def message(origin, deal_id, party, commitment, declaration):
    """Returns the bytes that a seat key signs."""
    return "".join("%s\n" % line for line in (DOMAIN, origin, deal_id, party, commitment, declaration)).encode("utf-8")


def attested(text):
    """Returns {declared, key, signature, origin} of attested_by, or None for an unknown form. key and signature may be None."""
    found = FORM.fullmatch(text)
    if found is None:
        return None
    only, mark, key, signature, origin = found.groups()
    if mark is None:
        return {"declared": only is not None, "key": only, "signature": None, "origin": None}
    return {"declared": mark == "declared", "key": key, "signature": signature, "origin": origin}


def check(report, certificate, known):
    """Checks the seat signatures. known: the parties' seat keys that the verifier knows, by party index."""
    rows, (named, bad) = certificate["parties"], digest_in(certificate["properties"])
    wrong, mismatched, keyed = [], [], False
    for i, row in enumerate(rows):
        by, signer, problem = attested(row["attested_by"]), None, None
        keyed = keyed or by is None or by["key"] is not None
        if by is None:
            problem = "attested_by is of no known form"
        elif by["signature"] is None:
            pass
        elif row["commitment"] is None:
            problem = "attested_by has a signature, but the party has no commitment"
        elif named is None:
            problem = bad or "the certificate names no declaration, but a seat signature must cover one"
        elif signatures.key_problem(by["key"]):
            problem = "%s: %s" % (by["key"], signatures.key_problem(by["key"]))
        elif not signatures.verify(by["key"], message(by["origin"], certificate["deal_id"], i, row["commitment"], named), by["signature"]):
            problem = "the signature does not verify under its seat key"
        elif report.origin not in (None, by["origin"]):
            problem = "signed for %s, and not for %s as a party before it" % (by["origin"], report.origin)
        else:
            signer, report.origin = by["key"], by["origin"]
        if problem:
            wrong.append("party %d: %s" % (i, problem))
        if i in known:
            if signer is None:
                mismatched.append("party %d has no valid signature by a seat key" % i)
            elif signer != known[i]:
                mismatched.append("party %d signed with %s, not with the key that you named" % (i, signer))
        report.parties.append(agreement(i, row, problem, signer, known.get(i)))
    mismatched += ["there is no party %d in the certificate" % i for i in sorted(known) if not 0 <= i < len(rows)]
    if keyed:
        report.add("party_signatures", few(wrong), "each seat signature is valid for its party and commitment in this deal")
    if known:
        report.add("party_keys", few(mismatched), "parties that signed with the key that you named: %d" % len(known))


def agreement(party, row, problem, signer, known):
    """Returns what is proven of a party's agreement, for the claim `agreed`."""
    if problem or known and signer != known:
        status, detail = "false", problem or "signed with %s, not with the key that you named" % signer
    elif row["commitment"] is None:
        status, detail = "not proven", "committed nothing, as the service says"
    elif signer is None:
        status, detail = "not proven", "no seat key signed, and the initiator held every invite token"
    elif known is None:
        status, detail = "not proven", "signed with %s, which the initiator may have named or brought; compare it with the key that you know: --seat-key %d=KEY" % (signer, party)
    else:
        status, detail = "proven", "signed with the seat key that you named"
    return {"party": party, "status": status, "detail": detail}


def few(words):
    more = ["and %d more" % (len(words) - MOST_NAMED)] if len(words) > MOST_NAMED else []
    return "; ".join(words[:MOST_NAMED] + more)


def check_declaration(report, declaration, certificate, times):
    """Checks that the declaration in a bundle is the one that the certificate names, and fits the certificate.

    times: (genesis, period) of the chain of the deal, or None.
    """
    named, bad = digest_in(certificate["properties"])
    if declaration is None:
        return
    rows, problem = certificate["parties"], None
    if named is None:
        problem = "the certificate names no declaration"
    elif digest(declaration) != named:
        problem = "the declaration is not the one that the certificate names"
    elif any(declaration[name] != certificate[name] for name in ("algorithm", "mode", "retention")) or not (
            len(declaration["party_labels"]) == len(declaration["party_keys"]) == len(rows)):
        problem = "the declaration is of another deal: algorithm, mode, retention or the number of parties differ"
    elif ("acted_by" in declaration) != (ACTED_BY_INITIATOR in certificate["properties"]):
        problem = "declaration and certificate disagree on whether the initiator acted for all parties"
    else:
        for i, (row, label, key) in enumerate(zip(rows, declaration["party_labels"], declaration["party_keys"])):
            by = attested(row["attested_by"]) or {"declared": False, "key": None}
            if row["label"] != label or (by["key"] if by["declared"] else None) != key:
                problem = "party %d has another label or another declared key in the declaration than in the certificate" % i
                break
        problem = problem or other_draw(declaration, certificate)
        report.early = None if problem else too_early(declaration, times)
        if report.early and "acted_by" in declaration:
            problem = "the initiator acted for all parties, but " + report.early
        report.late = None if problem else untimely(declaration, certificate, times)
        problem = problem or report.late
    report.add("declaration", problem, named or "")


ACTED_BY_INITIATOR = "acted-by-initiator"


def opened_by_seal(properties):
    """Reports whether at least one input came from a timelock seal."""
    return any(p.startswith("opened-by-timelock:") for p in properties)


def too_early(declaration, times):
    """Returns how the declared round could be out before the last reveal, or None."""
    if times is None:
        return None
    number, by = declaration["algorithm_params"].get("beacon_round"), declaration["reveal_deadline"]
    number = number if type(number) is int else 0
    if number < 1 or times[0] + (number - 1) * times[1] <= by:
        return "beacon round %d is not published after reveal_deadline %d" % (number, by)
    return None


def other_draw(declaration, certificate):
    """Returns how the beacon of a draw differs from the declared one, or None."""
    beacon = (certificate["result"] or {}).get("beacon")
    if not algorithms.draws(certificate["algorithm"]) or type(beacon) is not dict or type(beacon.get("chain_hash")) is not str or not beacon["chain_hash"]:
        return None  # the check draw refuses such a result of a draw
    if declaration["beacon_chain"] != beacon["chain_hash"]:
        return "the result was not drawn from the declared beacon chain"
    declared, drawn = declaration["algorithm_params"].get("beacon_round"), beacon.get("round")
    if type(declared) is not int or type(drawn) is not int or declared != drawn:
        return "the declaration names beacon round %s, but the result was drawn from round %s" % (declared, drawn)
    return None


def untimely(declaration, certificate, times):
    """Returns a problem if a phase closed at or after its deadline, or None. A phase that missed its deadline has
    no closing time. Reveals from seals may come later, because their beacon round may be late, but not before the
    round is due."""
    by_seal = opened_by_seal(certificate["properties"])
    for phase in ("commit", "reveal"):
        by, closed = declaration[phase + "_deadline"], certificate["timing"][phase + "s_closed_at"]
        if closed is not None and closed >= by and not (phase == "reveal" and by_seal):
            return "%ss must close before the declared %s_deadline %d, but they closed at %d" % (phase, phase, by, closed)
    if times and by_seal and closed is not None:
        number = timelock.round_of(times[0], times[1], declaration["commit_deadline"])
        due = times[0] + (number - 1) * times[1]
        if closed < due:
            return "inputs came from seals, which beacon round %d opens from %d on, but reveals closed at %d" % (number, due, closed)
    return None
