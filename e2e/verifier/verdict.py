"""Says what the checks of a report prove: the seven claims of /protocol, section 9.2, always all and in this order."""

import algorithms
import seats

PROVEN, OPEN, FALSE, NONE = "proven", "not proven", "false", "not applicable"

# The checks that a claim depends on. If one of them failed, the claim is false.
CHECKS = {
    "issued": ("bundle", "shape", "keys", "signature", "tree_head_signature", "key_in_force"),
    "logged": ("tree_size", "merkle_inclusion", "log_proof", "checkpoint_signature"),
    "cosigned": ("witnesses",),
    "agreed": ("party_signatures", "party_keys", "declaration"),
    "fixed": ("closing", "closing_witnesses"),
    "result": ("input_root_wellformed", "consistency", "commitments", "input_root", "result", "own_input", "input_path"),
    "draw": ("draw", "beacon_chain", "beacon_signature"),
}


def claims(report, certificate):
    """Returns the claims. certificate: None if it, or its bundle, is malformed."""
    rows = []
    for name, needed in CHECKS.items():
        wrong = [c for c in report.checks if c["name"] in needed and not c["ok"]]
        if report.late:  # the declaration failed only in its times, which is the claim `fixed`
            wrong = [c for c in wrong if c["name"] != "declaration"]
        if certificate is None:
            status, detail = (FALSE, wrong[0]["detail"]) if name == "issued" else (OPEN, "the document is malformed")
        elif wrong:
            status, detail = FALSE, "%s: %s" % (wrong[0]["name"], wrong[0]["detail"])
        else:
            status, detail = JUDGES[name](report, certificate)
            if status == PROVEN and rows and rows[0]["status"] == FALSE:
                status, detail = OPEN, "nothing is proven by a certificate of another issuer"
        rows.append({"claim": name, "status": status, "detail": detail})
        if name == "agreed":
            rows[-1]["parties"] = [] if certificate is None else report.parties
    return rows


def issued(report, _):
    if report.development:
        return OPEN, "signed by a key that the deployment declares a development key: such certificates prove nothing"
    if report.issuer == "file":
        return OPEN, "signed by a key that this file brought; give the key of the deployment with --pubkey or --keys"
    return PROVEN, "signed by a key " + ("that you gave" if report.issuer == "given" else "that %s names" % report.issuer)


def logged(report, _):
    status, detail = issued(report, None)
    return status, "a leaf under a tree head of this issuer" if status == PROVEN else "a leaf under a tree head " + detail


def cosigned(report, _):
    if report.alone:
        return OPEN, "a certificate alone has no checkpoint; verify the bundle with --policy"
    if report.policy is None:
        return OPEN, "no policy says which witnesses you trust; give one with --policy"
    if report.policy.quorum == "none":
        return OPEN, "the policy requires no cosignatures"
    found = [c["detail"] for c in report.checks if c["name"] == "witnesses"]
    return (PROVEN, found[0]) if found else (OPEN, "log_proof is malformed")


def agreed(report, certificate):
    proven = sum(row["status"] == PROVEN for row in report.parties)
    words = "%d of %d parties signed with the seat key that you named" % (proven, len(report.parties))
    if report.origin:
        words += ", for the deployment at " + report.origin
    if proven == len(report.parties):
        return PROVEN, words
    if seats.ACTED_BY_INITIATOR in certificate["properties"]:
        return NONE, "the initiator acted for all parties, as the deal declares"
    return OPEN, words + "; name the seat keys that you know with --seat-key N=KEY"


def fixed(report, _):
    if report.late:
        return FALSE, report.late
    if report.closed is None:
        return OPEN, "the times are the operator's word"
    if report.policy is None:
        return OPEN, "the commitments are in the log, but only witnesses show since when; give a policy with --policy"
    if report.policy.quorum == "none":
        return OPEN, "the commitments are in the log, but only witnesses show since when, and the policy requires no cosignatures"
    if not report.closed["known"]:
        return OPEN, "the beacon's chain is not drand quicknet, and its times are only in this file; compare them with those that you know"
    if not report.closed["by_seal"]:
        return OPEN, "no input came from a seal, and when each party revealed is the operator's word"
    if report.closed["unsealed"]:
        return OPEN, "%s, but when the parties without a seal revealed is the operator's word: %s" % (report.closed["detail"], few(report.closed["unsealed"]))
    return PROVEN, report.closed["detail"] + "; an input that its party revealed by hand before is not covered"


def result(report, certificate):
    if report.recomputed:
        return PROVEN, "recomputed from the inputs of all parties"
    if certificate["outcome"] == "VOID":
        return OPEN, "there is no result; which party missed its deadline or rejected is the operator's word"
    if report.opened is None and report.alone and not report.supposed:
        return OPEN, "the result was not recomputed; verify the bundle, or give --inputs and --params"
    missing = [i for i in range(len(certificate["parties"])) if i not in (report.opened or ())]
    if not missing:
        return OPEN, "all commitments were opened, but the params are missing: verify the bundle, or give --params"
    word = "the arithmetic holds, but that all accepted is the operator's word: " if report.supposed else ""
    return OPEN, word + "the inputs of %d of %d parties are missing: %s; %s" % (len(missing), len(certificate["parties"]), few(missing), obtain(certificate))


def obtain(certificate):
    """Returns how to get the openings that are missing."""
    if "inputs-purged" in certificate["properties"]:
        return "the service deleted them, but the parties can send their openings: --opening FILE"
    if algorithms.draws(certificate["algorithm"]):
        return "get the bundle again"
    return "all parties can consent, or send their openings: --opening FILE"


def draw(report, certificate):
    if not algorithms.draws(certificate["algorithm"]) or certificate["outcome"] == "VOID":
        return NONE, "nothing was drawn"
    failed = next((c for c in report.checks if c["name"] == "result" and not c["ok"]), None)
    if failed:
        return FALSE, "result: " + failed["detail"]
    if report.early:
        return OPEN, report.early + ": whoever revealed last could choose the winner; only another deal, with a later round, can prove a draw"
    if report.alone:
        return OPEN, "a certificate alone does not show whether its beacon round was out before the last reveal; verify the bundle, which has the declared deadlines"
    if not report.recomputed:
        return OPEN, "nonce_digest is the operator's word: the openings of all parties are missing; " + obtain(certificate)
    if report.chain is None:
        if report.bound:
            return OPEN, "the beacon's chain is not drand quicknet; its key belongs to the chain hash, which the deal declared, but whose chain it is you must know"
        return OPEN, "the beacon's chain is not drand quicknet, and nothing shows that its key belongs to the chain hash; compare it with the one that you know"
    return PROVEN, "nonces, beacon round and winner were recomputed; %s signed the round" % report.chain


JUDGES = {"issued": issued, "logged": logged, "cosigned": cosigned, "agreed": agreed, "fixed": fixed, "result": result, "draw": draw}


def few(indexes, most=8):
    return ", ".join([str(i) for i in indexes[:most]] + (["and %d more" % (len(indexes) - most)] if len(indexes) > most else []))
