"""Makes a bundle for each row of the table of claims, good and forged, under toy keys: `python3 rows.py` writes them.

A case is {bundle, policy, pubkeys, parties, openings, failed, claims, agreed}: what a verifier is given, the checks that
must fail, and the status of each claim. test_bundles.py holds the files to this program, so the files are never edited.
"""

import base64
import json
import os

import closing
import jcs
import notes
import seats
import toys
from algorithms import KNOWN

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testdata", "bundles")
ORIGIN = "rows.example"
WITNESS = toys.ToyEd25519(b"witness")
WITNESS_KEY = notes.Key("w.example", notes.COSIGNATURE, WITNESS.raw)
SEATS = [toys.ToyEd25519(b"seat %d" % i) for i in range(3)]
LABELS = ["Ann", "Bob", "Cleo"]
QUICKNET = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
SIGNED = "929906c959032ab363c9f26570d215d66f5c06cb0c44fe508c12bb5839f04ec895bb6868e5b9ff13ab289bdb5266b394"
BEACON = {"chain_hash": QUICKNET, "round": 12040883, "randomness": toys.H(bytes.fromhex(SIGNED)).hex(), "signature": SIGNED}
CHAIN = {"chain_hash": QUICKNET, "genesis_time": 1692803367, "period": 3, "public_key": (
    "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb"
    "5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a")}
NONCES = [{"input": {"nonce": nonce}, "salt": "salt %d" % i} for i, nonce in enumerate(["00ff", "1234", "abcd"])]
POINTS = [{"input": {"valuations": {"house": a, "boat": b}}, "salt": "salt %d" % i} for i, (a, b) in enumerate([(60, 40), (20, 80)])]
ANSWERS = [{"input": {"accept": True}, "salt": "salt %d" % i} for i in range(3)]
WORTH = {"coalition_values": {"0": 10, "1": 20, "2": 30, "0,1": 50, "0,2": 60, "1,2": 70, "0,1,2": 120}}


def vkey(key):
    return "%s+%s" % (key, base64.b64encode(bytes([key.kind]) + key.public).decode())


def log_key():
    return notes.deployment_key(ORIGIN, toys.KEY.public)


POLICY = "log %s\nwitness w0 %s\nquorum w0\n" % (vkey(log_key()), vkey(WITNESS_KEY))


def der(signature):
    """Returns an es256 signature as ASN.1."""
    number = lambda digits: b"\x02" + (lambda raw: bytes([len(raw)]) + raw)(int(digits, 16).to_bytes(int(digits, 16).bit_length() // 8 + 1, "big"))
    body = number(signature[6:70]) + number(signature[70:])
    return b"\x30" + bytes([len(body)]) + body


def proof(certificate, head, cosigned=True, time=1700000000):
    """Returns the bundle's log_proof: a checkpoint of the tree head, signed by the log and cosigned by the witness."""
    text = "%s\n%d\n%s\n" % (ORIGIN, head["tree_size"], base64.b64encode(bytes.fromhex(head["root_hash"])).decode())
    line = lambda key, data: "— %s %s\n" % (key.name, base64.b64encode(key.id + data).decode())
    lines = line(log_key(), der(toys.KEY.sign(text.encode())))
    if cosigned:
        signature = bytes.fromhex(WITNESS.sign(b"cosignature/v1\ntime %d\n" % time + text.encode()).partition(":")[2])
        lines += line(WITNESS_KEY, time.to_bytes(8, "big") + signature)
    of = certificate["log_proof"]
    rows = [base64.b64encode(bytes.fromhex(p)).decode() for p in of["inclusion_path"]]
    return "\n".join(["c2sp.org/tlog-proof@v1", "index %d" % of["leaf_index"]] + rows) + "\n\n" + text + "\n" + lines


def deal(algorithm, params, sealed, result=None, mode="sealed", flakers=None, signed=True, void=None, revealed=True, chain=QUICKNET, closed=None, declared=None, sealed_for=None, pinned=False, texts=None, acted=False, names=LABELS, origins=("https://" + ORIGIN,) * 3):
    """Returns the bundle of a deal that has ended. result: the certified result; None: the true one. void: the reason.

    chain: hash of the beacon chain. closed: when the reveals closed, by default in time. declared: labels in the declaration, if others.
    sealed_for: the round that opened inputs, of a deal whose commit_deadline is SEALED_BY. pinned: whether the deal declares the chain. texts: title and message, audience and who acts.
    acted: whether the certificate says that the initiator acted for all. names: the labels. origins: of the deployment that each party signed for.
    """
    labels = names[:len(sealed)]
    of = KNOWN[algorithm]
    draws = hasattr(of, "redraw")
    beacon = dict(BEACON, chain_hash=chain) if draws else None
    declaration = {"algorithm": algorithm, "algorithm_params": params, "beacon_chain": chain if draws or pinned else None,
                   "commit_deadline": 1600000100, "reveal_deadline": 1600000200, "mode": mode, "retention": "standard",
                   "party_keys": [SEATS[i].public if signed else None for i in range(len(sealed))], "party_labels": declared or labels, **(texts or {})}
    done = 1700000160 if sealed_for else 1600000150
    closed = closed or done
    if sealed_for:
        declaration.update(commit_deadline=SEALED_BY, reveal_deadline=SEALED_BY + 300)
    named = seats.digest(declaration)
    parties = []
    for i, label in enumerate(labels):
        fixed = toys.commitment(sealed[i])
        by = "initiator"
        if signed:
            by = "declared %s %s %s" % (SEATS[i].public, SEATS[i].sign(seats.message(origins[i], "d_rows", i, fixed, named)), origins[i])
        parties.append({"index": i, "label": label, "commitment": fixed, "attested_by": by})
    if void is None and result is None:
        result = of.result(labels, params, [s["input"] for s in sealed], beacon)
    properties = ["inputs-committed-before-reveal", "deterministic-recomputable", "logged", "declaration-sha256:" + named]
    properties += ["beacon-verified"] if draws and void is None else []
    properties += [void] if void else []
    properties += ["acted-by-initiator"] if acted else []
    properties += ["opened-by-timelock:%d" % sealed_for] if sealed_for else []
    root = "sha256:" + toys.tree([jcs.encode(s["input"]) + s["salt"].encode() for s in sealed]).hex()
    certificate, head = toys.issue({
        "cert_version": "1", "cert_id": "c_rows", "deal_id": "d_rows", "outcome": "VOID" if void else "COMPUTED",
        "algorithm": algorithm, "mode": mode, "retention": "standard", "parties": parties, "input_root": root if revealed else None,
        "result": result, "void_flakers": flakers, "properties": properties, "tee_attestation": None,
        "timing": {"created_at": 1600000000, "commits_closed_at": 1600000050, "reveals_closed_at": closed if revealed else None,
                   "computed_at": None if void else done}})
    bundle = {"bundle_version": "1", "certificate": certificate, "tree_head": head, "keys": toys.key_set((toys.KEY, "current")),
              "log_proof": proof(certificate, head), "declaration": declaration}
    return dict(bundle, beacon=dict(CHAIN, chain_hash=chain)) if draws and void is None else bundle


def reissued(bundle, **changes):
    """Returns the bundle with these changes in its certificate."""
    certificate, head = toys.issue({k: v for k, v in {**bundle["certificate"], **changes}.items() if k not in ("signature", "log_proof")})
    return dict(bundle, certificate=certificate, tree_head=head, log_proof=proof(certificate, head))


SEALED_BY = 1700000100  # the round is due at 1700000160
ROUND = 2398932


def closed(bundle, time=1700000130, commitments=None, hashes=("0a" * 32, "0b" * 32), number=ROUND, beacon=CHAIN):
    """Returns the bundle with its closing. time: when the witness cosigned. commitments: what was in the log, if not those of the certificate."""
    certificate = bundle["certificate"]
    commitments = commitments or [p["commitment"] for p in certificate["parties"]]
    leaves = [toys.H(b"closing %d" % i) for i in range(15)]
    leaves[5] = closing.entry("d_rows", seats.digest(bundle["declaration"]), beacon["chain_hash"], number, list(zip(commitments, hashes)))
    at = {"log_proof": {"leaf_index": 5, "inclusion_path": [p.hex() for p in toys.path(5, leaves)]}}
    return dict(bundle, closing={"beacon": beacon, "seal_hashes": list(hashes), "log_proof": proof(at, toys.signed_head(15, toys.tree(leaves)), time=time)})


def opening(party, sealed):
    return dict(sealed, deal_id="d_rows", party=party)


def ground(winner):
    """Returns the draw that an operator certifies who tries digests until the wanted party wins."""
    return next(drawn for drawn in (KNOWN["random.v1"].draw(LABELS, BEACON, toys.H(b"try %d" % i).hex()) for i in range(1000))
                if drawn["winner"] == winner)


def wrong_split():
    labels, inputs = LABELS[:2], [s["input"] for s in POINTS[::-1]]
    return KNOWN["split.v1"].result(labels, {"items": ["house", "boat"]}, inputs, None)


def wrong_shapley():
    true = KNOWN["shapley.v1"].result(LABELS, WORTH, [s["input"] for s in ANSWERS])
    shares = [dict(row) for row in true["shares"]]
    shares[0]["payout"], shares[1]["payout"] = shares[0]["payout"] + 1, shares[1]["payout"] - 1
    return dict(true, shares=shares)


def cases():
    """Yields (name, case without claims, statuses of the claims, statuses of the parties)."""
    P, O, F, N = "proven", "not proven", "false", "not applicable"
    known = {str(i): SEATS[i].public for i in range(3)}
    two = {name: known[name] for name in ("0", "1")}
    given = {"policy": POLICY, "pubkeys": [toys.KEY.public], "parties": known, "failed": []}
    draw, split = deal("random.v1", {"beacon_round": 12040883}, NONCES), deal("split.v1", {"items": ["house", "boat"]}, POINTS)
    all3, all2 = [P, P, P], [P, P]
    yield "rows-draw", dict(given, bundle=dict(draw, openings=NONCES)), [P, P, P, P, O, P, P], all3
    yield "rows-draw-without-openings", dict(given, bundle=draw), [P, P, P, P, O, O, O], all3
    # The service shows no input of a deal with retention purge, and takes no consent: a verifier advises neither.
    purged = lambda of: reissued(of, retention="purge", properties=of["certificate"]["properties"] + ["inputs-purged"])
    gone = purged(deal("random.v1", {"beacon_round": 12040883}, NONCES, texts={"retention": "purge"}))
    yield "rows-draw-purged", dict(given, bundle=gone, says="the openings of all parties are missing; the service deleted them"), [P, P, P, P, O, O, O], all3
    sent = [opening(i, NONCES[i]) for i in range(3)]
    yield "rows-draw-purged-exchanged", dict(given, bundle=gone, openings=sent), [P, P, P, P, O, P, P], all3
    yield "rows-draw-by-itself", {"bundle": dict(draw, openings=NONCES), "failed": []}, [O, O, O, O, O, P, P], [O, O, O]
    true = draw["certificate"]["result"]["winner"]
    forged = deal("random.v1", {"beacon_round": 12040883}, NONCES, result=ground((true + 1) % 3))
    yield "rows-draw-ground", dict(given, bundle=dict(forged, openings=NONCES), failed=["result"]), [P, P, P, P, O, F, F], all3
    yield "rows-draw-ground-unseen", dict(given, bundle=forged), [P, P, P, P, O, O, O], all3
    foreign = deal("random.v1", {"beacon_round": 12040883}, NONCES, chain="0" * 64)
    yield "rows-draw-of-a-renamed-chain", dict(given, bundle=dict(foreign, openings=NONCES)), [P, P, P, P, O, P, O], all3
    # The key of one chain under the hash of another: drand's chain `default`, with the seed and id that this chain publishes.
    label = deal("random.v1", {"beacon_round": 12040883}, NONCES, chain="8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce")
    label = dict(label, beacon=dict(label["beacon"], genesis_seed="176f93498eac9ca337150b46d21dd58673ea4e3581185f869672e59fa4cb390a", beacon_id="default"))
    yield "rows-draw-of-a-false-label", dict(given, bundle=dict(label, openings=NONCES), failed=["beacon_chain"]), [P, P, P, P, O, P, F], all3
    parts = dict(CHAIN, genesis_seed="ab" * 32, beacon_id="rows")
    numbers = parts["period"].to_bytes(4, "big") + parts["genesis_time"].to_bytes(8, "big")
    bound = toys.H(numbers + bytes.fromhex(parts["public_key"] + parts["genesis_seed"]) + b"rows").hex()
    own = deal("random.v1", {"beacon_round": 12040883}, NONCES, chain=bound)
    yield "rows-draw-of-an-own-chain", dict(given, bundle=dict(own, beacon=dict(parts, chain_hash=bound), openings=NONCES)), [P, P, P, P, O, P, O], all3
    del parts["beacon_id"]
    yield "rows-draw-of-half-a-chain", dict(given, bundle=dict(own, beacon=dict(parts, chain_hash=bound), openings=NONCES), failed=["beacon_chain"]), [P, P, P, P, O, P, F], all3
    other = NONCES[:2] + [dict(NONCES[2], input={"nonce": "abce"})]
    yield "rows-draw-other-opening", dict(given, bundle=dict(draw, openings=other), failed=["commitments"]), [P, P, P, P, O, F, O], all3
    # The round is due at 1728926013. It must come after the last reveal, or whoever revealed last knew the winner.
    within = {"commit_deadline": 1600000100, "reveal_deadline": 1728926012}
    last = deal("random.v1", {"beacon_round": 12040883}, NONCES, texts=within)
    yield "rows-draw-of-the-first-late-round", dict(given, bundle=dict(last, openings=NONCES)), [P, P, P, P, O, P, P], all3
    early = deal("random.v1", {"beacon_round": 12040883}, NONCES, texts=dict(within, reveal_deadline=1728926013))
    yield "rows-draw-of-an-early-round", dict(given, bundle=dict(early, openings=NONCES)), [P, P, P, P, O, P, O], all3
    later = closed(dict(early, openings=NONCES), hashes=("0a" * 32,) * 3, beacon=dict(CHAIN, chain_hash="0" * 64, genesis_time=1800000000))
    yield "rows-draw-of-an-early-round-with-other-times", dict(given, bundle=later, failed=["closing", "closing_witnesses"]), [P, P, P, P, F, P, O], all3
    given = dict(given, parties=two)
    yield "rows-split", dict(given, bundle=dict(split, openings=POINTS)), [P, P, P, P, O, P, N], all2
    yield "rows-split-sealed", dict(given, bundle=split), [P, P, P, P, O, O, N], all2
    gone = purged(deal("split.v1", {"items": ["house", "boat"]}, POINTS, texts={"retention": "purge"}))
    yield "rows-split-purged", dict(given, bundle=gone, says="; the service deleted them"), [P, P, P, P, O, O, N], all2
    yield "rows-split-half", dict(given, bundle=split, openings=[opening(1, POINTS[1])]), [P, P, P, P, O, O, N], all2
    exchanged = [opening(i, POINTS[i]) for i in (1, 0)]
    yield "rows-split-exchanged", dict(given, bundle=split, openings=exchanged), [P, P, P, P, O, P, N], all2
    lie = deal("split.v1", {"items": ["house", "boat"]}, POINTS, result=wrong_split())
    yield "rows-split-lie", dict(given, bundle=lie, openings=exchanged, failed=["result"]), [P, P, P, P, O, F, N], all2
    yield "rows-split-lie-unseen", dict(given, bundle=lie), [P, P, P, P, O, O, N], all2
    stranger = [dict(exchanged[0], deal_id="d_other")]
    yield "rows-split-other-deal", dict(given, bundle=split, openings=stranger, failed=["commitments"]), [P, P, P, P, O, F, N], all2
    given = dict(given, parties=known)
    game = deal("shapley.v1", WORTH, ANSWERS)
    yield "rows-shapley", dict(given, bundle=dict(game, openings=ANSWERS)), [P, P, P, P, O, P, N], all3
    yield "rows-shapley-unopened", dict(given, bundle=game), [P, P, P, P, O, O, N], all3
    lie = deal("shapley.v1", WORTH, ANSWERS, result=wrong_shapley())
    yield "rows-shapley-lie", dict(given, bundle=lie, failed=["result"]), [P, P, P, P, O, F, N], all3
    mine = [opening(0, ANSWERS[0])]
    yield "rows-shapley-half", dict(given, bundle=game, openings=mine), [P, P, P, P, O, O, N], all3
    yield "rows-shapley-lie-half", dict(given, bundle=lie, openings=mine, failed=["result"]), [P, P, P, P, O, F, N], all3
    rejected = ANSWERS[:2] + [{"input": {"accept": False}, "salt": "salt 2"}]
    lie = deal("shapley.v1", WORTH, rejected, result=KNOWN["shapley.v1"].result(LABELS, WORTH, [s["input"] for s in ANSWERS]))
    yield "rows-shapley-hidden-rejection", dict(given, bundle=lie, openings=[opening(2, rejected[2])], failed=["result"]), [P, P, P, P, O, F, N], all3
    yield "rows-shapley-hidden-rejection-unseen", dict(given, bundle=lie), [P, P, P, P, O, O, N], all3
    void = deal("shapley.v1", WORTH, rejected, flakers=[2], void="void:rejected")
    yield "rows-void-rejected-half", dict(given, bundle=void, openings=[opening(i, rejected[i]) for i in (0, 2)]), [P, P, P, P, O, O, N], all3
    yield "rows-void-rejected", dict(given, bundle=dict(void, openings=rejected)), [P, P, P, P, O, P, N], all3
    lie = deal("shapley.v1", WORTH, rejected, flakers=[1], void="void:rejected")
    yield "rows-void-rejected-lie", dict(given, bundle=dict(lie, openings=rejected), failed=["result"]), [P, P, P, P, O, F, N], all3
    third = [opening(2, ANSWERS[2])]
    for name, revealed in (("", True), ("-unrevealed", False)):
        void = deal("shapley.v1", WORTH, ANSWERS, flakers=[2], void="void:rejected", revealed=revealed)
        yield "rows-void-accepted" + name, dict(given, bundle=dict(void, openings=ANSWERS), failed=["result"]), [P, P, P, P, O, F, N], all3
        yield "rows-void-accepted-half" + name, dict(given, bundle=void, openings=third, failed=["result"]), [P, P, P, P, O, F, N], all3
        yield "rows-void-accepted-unseen" + name, dict(given, bundle=void, openings=mine), [P, P, P, P, O, O, N], all3
    void = deal("random.v1", {"beacon_round": 12040883}, NONCES, flakers=[1], void="void:missed-reveal", revealed=False)
    yield "rows-void-missed", dict(given, bundle=void), [P, P, P, P, O, O, N], all3
    late = deal("split.v1", {"items": ["house", "boat"]}, POINTS, closed=1600000200)
    yield "rows-late", dict(given, bundle=late, parties=two, failed=["declaration"]), [P, P, P, P, F, O, N], all2
    strangers = {"bundle": late, "pubkeys": [toys.OLD_KEY.public], "parties": two,
                 "failed": ["signature", "tree_head_signature", "key_in_force", "checkpoint_signature", "declaration"]}
    yield "rows-late-of-another-issuer", strangers, [F, F, O, O, F, O, N], all2
    other = deal("split.v1", {"items": ["house", "boat"]}, POINTS, closed=1600000200, declared=["Ann", "Rob"])
    yield "rows-late-with-other-labels", dict(given, bundle=other, parties=two, failed=["declaration"]), [P, P, P, F, O, O, N], all2
    alone = deal("split.v1", {"items": ["house", "boat"]}, POINTS, signed=False)
    yield "rows-alone", {"bundle": alone, "pubkeys": [toys.KEY.public], "failed": []}, [P, P, O, O, O, O, N], [O, O]
    both = {"failed": ["closing", "closing_witnesses"]}
    given = dict(given, parties=two)
    lock = deal("split.v1", {"items": ["house", "boat"]}, POINTS, sealed_for=ROUND)
    yield "rows-sealed", dict(given, bundle=closed(lock)), [P, P, P, P, P, O, N], all2
    unwitnessed = {name: value for name, value in given.items() if name != "policy"}
    early = deal("split.v1", {"items": ["house", "boat"]}, POINTS, sealed_for=ROUND, closed=1700000159)
    yield "rows-sealed-opened-early", dict(given, bundle=closed(early), failed=["declaration", "closing", "closing_witnesses"]), [P, P, P, P, F, O, N], all2
    yield "rows-sealed-opened-early-on-another-chain", dict(given, bundle=closed(early, beacon=dict(CHAIN, chain_hash="0" * 64)), failed=["declaration", "closing", "closing_witnesses"]), [P, P, P, P, F, O, N], all2
    pinned = deal("split.v1", {"items": ["house", "boat"]}, POINTS, sealed_for=ROUND, closed=1700000159, pinned=True)
    yield "rows-sealed-opened-early-without-closing", dict(unwitnessed, bundle=pinned, failed=["declaration"]), [P, P, O, P, F, O, N], all2
    yield "rows-sealed-without-policy", dict(unwitnessed, bundle=closed(lock)), [P, P, O, P, O, O, N], all2
    yield "rows-sealed-cosigned-late", dict(given, bundle=closed(lock, 1700000160), failed=["closing_witnesses"]), [P, P, P, P, F, O, N], all2
    yield "rows-sealed-late-without-policy", dict(unwitnessed, bundle=closed(lock, 1700000160)), [P, P, O, P, O, O, N], all2
    first = [lock["certificate"]["parties"][0]["commitment"], toys.commitment(POINTS[0])]
    yield "rows-sealed-other-commitment", dict(given, bundle=closed(lock, commitments=first), **both), [P, P, P, P, F, O, N], all2
    swapped = closed(lock)
    swapped["closing"] = dict(swapped["closing"], seal_hashes=["0a" * 32, "0c" * 32])
    yield "rows-sealed-other-seal", dict(given, bundle=swapped, **both), [P, P, P, P, F, O, N], all2
    yield "rows-sealed-without-closing", dict(given, bundle=lock, failed=["closing_witnesses"]), [P, P, P, P, F, O, N], all2
    yield "rows-sealed-half", dict(given, bundle=closed(lock, hashes=("0a" * 32, None))), [P, P, P, P, O, O, N], all2
    later = deal("split.v1", {"items": ["house", "boat"]}, POINTS, sealed_for=ROUND + 100)
    yield "rows-sealed-for-a-later-round", dict(given, bundle=closed(later, 1700000300, number=ROUND + 100), **both), [P, P, P, P, F, O, N], all2
    slow = dict(CHAIN, chain_hash="0" * 64)
    yield "rows-sealed-for-a-renamed-chain", dict(given, bundle=closed(lock, beacon=slow)), [P, P, P, P, O, O, N], all2
    slow = dict(CHAIN, genesis_time=CHAIN["genesis_time"] + 1000)
    yield "rows-sealed-for-other-times", dict(given, bundle=closed(lock, beacon=slow), **both), [P, P, P, P, F, O, N], all2
    yield "rows-sealed-revealed-by-hand", dict(given, bundle=closed(split, number=1), failed=["closing_witnesses"]), [P, P, P, P, F, O, N], all2
    undeclared = closed(lock)
    del undeclared["declaration"]
    yield "rows-sealed-without-declaration", dict(given, bundle=undeclared, **both), [P, P, P, P, F, O, N], all2
    words = {"title": "House & <b>boat</b>", "message": "Hello \"Bob\",\n\nI\u202fsay é. \U0001f600"}
    titled = deal("split.v1", {"items": ["house", "boat"]}, POINTS, texts=words)
    yield "rows-titled", dict(given, bundle=dict(titled, openings=POINTS)), [P, P, P, P, O, P, N], all2
    renamed = dict(titled, openings=POINTS, declaration=dict(titled["declaration"], message="Hello \"Bob\",\n\nI\u202fsay e. \U0001f600"))
    yield "rows-titled-otherwise", dict(given, bundle=renamed, failed=["declaration"]), [P, P, P, F, O, O, N], all2
    organised = {"audience": "public", "acted_by": "initiator"}
    raffle = deal("random.v1", {"beacon_round": 12040883}, NONCES, signed=False, texts=organised, acted=True)
    yield "rows-organised", dict(given, bundle=dict(raffle, openings=NONCES), parties={}), [P, P, P, N, O, P, P], [O, O, O]
    hidden = deal("random.v1", {"beacon_round": 12040883}, NONCES, signed=False, texts=organised)
    yield "rows-organised-unsaid", dict(given, bundle=dict(hidden, openings=NONCES), parties={}, failed=["declaration"]), [P, P, P, F, O, O, O], [O, O, O]
    early = deal("random.v1", {"beacon_round": 12040883}, NONCES, signed=False, texts=dict(organised, reveal_deadline=1800000000), acted=True)
    yield "rows-organised-early", dict(given, bundle=dict(early, openings=NONCES), parties={}, failed=["declaration"]), [P, P, P, F, O, O, O], [O, O, O]
    # Bob signed the same terms and deal_id for another deployment.
    elsewhere = deal("split.v1", {"items": ["house", "boat"]}, POINTS, origins=("https://" + ORIGIN, "https://other.example"))
    yield "rows-split-of-two-origins", dict(given, bundle=dict(elsewhere, openings=POINTS), parties=two, failed=["party_signatures", "party_keys"],
                                            says="party 1: signed for https://other.example"), [P, P, P, F, O, P, N], [P, F]
    # What an implementation easily reads in another way: limits, members of another type or case, signature lines.
    bare = {"pubkeys": [toys.KEY.public], "failed": []}
    misshapen = ["shape", "key_in_force", "tree_size", "merkle_inclusion", "input_root_wellformed", "consistency"]
    private = {name: value for name, value in alone.items() if name != "declaration"}
    yield "rows-unknown-algorithm", dict(bare, bundle=reissued(private, algorithm="auction.v1", result={"winner": 0}), failed=misshapen), [F, O, O, O, O, O, O], []
    half = lambda *items: {"method": "adjusted_winner", "shares": [
        {"party": i, "label": LABELS[i], "items": [{"item": item, "share": "1/2"} for item in items], "value_ppb": 500000000} for i in range(2)]}
    same = [{"input": {"valuations": {"boat": 1}}, "salt": "salt %d" % i} for i in range(2)]
    for name, items, failed in (("", ["a" * 200, "boat"], []), ("-too-long", ["é" * 100 + "a", "boat"], ["result"])):
        of = deal("split.v1", {"items": items}, same, result=half(*items), signed=False)
        yield "rows-split-item" + name, dict(bare, bundle=dict(of, openings=same), failed=failed), [P, P, O, O, O, F if failed else P, N], [O, O]
    renamed = lambda result, names: dict(result, shares=[dict(row, label=name) for row, name in zip(result["shares"], names)])
    shares = game["certificate"]["result"]
    for name, names in (("twice", ["Ann", "Ann", "Cleo"]), ("comma", ["Ann", "Bob,", "Cleo"]), ("control", ["Ann", "Bob\x85", "Cleo"]), ("long", ["Ann", "é" * 101, "Cleo"])):
        of = deal("shapley.v1", WORTH, ANSWERS, result=renamed(shares, names), signed=False, names=names)
        yield "rows-shapley-label-" + name, dict(bare, bundle=dict(of, openings=ANSWERS), failed=["result"]), [P, P, O, O, O, F, N], [O, O, O]
    of = deal("shapley.v1", {"coalition_values": {"nobody": 1}}, rejected, flakers=[2], void="void:rejected", signed=False)
    yield "rows-void-rejected-of-no-game", dict(bare, bundle=dict(of, openings=rejected), failed=["result"]), [P, P, O, O, O, F, N], [O, O, O]
    for name, beacon in (("", {"beacon": {"chain_hash": "ab", "round": 3}}), ("-number", {"beacon": {"chain_hash": 5}}), ("-capital", {"Beacon": {"Chain_Hash": "ab"}})):
        yield "rows-split-beacon" + name, dict(bare, bundle=reissued(alone, result=dict(beacon, method="x"))), [P, P, O, O, O, O, N], [O, O]
    line = lambda name, data=b"abcd" + bytes(8): "— %s %s\n" % (name, base64.b64encode(data).decode())
    note = alone["log_proof"]
    bad = line(ORIGIN, log_key().id + bytes(64))
    strangers = lambda n: "".join(line("o%d.example" % i) for i in range(n))
    notes_of = [("lines", note + strangers(98), []), ("too-many-lines", note + strangers(99), ["log_proof"]), ("second-line-of-the-log", note + bad, []),
                ("first-line-of-the-log", note.replace("— " + ORIGIN, bad + "— " + ORIGIN), ["checkpoint_signature"]),
                ("name-feff", note + line("a\ufeffb"), []), ("name-of-nothing", note + line(""), ["log_proof"]), ("name-plus", note + line("a+b"), ["log_proof"])]
    notes_of += [("name-%04x" % ord(c), note + line("a%sb" % c), ["log_proof"]) for c in "\x01\x1c\x7f\x85\xa0\u2028\u3000"]
    for name, text, failed in notes_of:
        yield "rows-note-" + name, dict(bare, bundle=dict(alone, log_proof=text), failed=failed), [P, F if failed else P, O, O, O, O, N], [O, O]
    quiet = dict(split, log_proof=proof(split["certificate"], split["tree_head"], cosigned=False))
    yield "rows-not-cosigned", dict(given, bundle=quiet, parties=two, failed=["witnesses"]), [P, P, F, P, O, O, N], all2


def made():
    """Returns the text of each file by its name."""
    files = {}
    for name, case, claims, agreed in cases():
        statuses = dict(zip(("issued", "logged", "cosigned", "agreed", "fixed", "result", "draw"), claims))
        files[name + ".json"] = json.dumps(dict(case, claims=statuses, agreed=agreed), indent=1, ensure_ascii=False) + "\n"
    return files


if __name__ == "__main__":
    for name, text in made().items():
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
            file.write(text)
