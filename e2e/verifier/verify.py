#!/usr/bin/env python3
"""Verifies a Fairpact certificate with nothing but Python's standard library. See README.md."""

import argparse
import hashlib
import json
import re
import sys

import algorithms
import bls
import closing
import jcs
import notes
import receipt
import seats
import shape
import signatures
import verdict

EXIT_GOOD, EXIT_FAILED, EXIT_UNREADABLE, EXIT_UNKNOWN_ISSUER = 0, 1, 2, 4


# ---- RFC 6962: leaf and node hashes, roots and inclusion paths

def leaf_hash(data):
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(leaves):
    """Returns the root over leaf hashes (RFC 6962 2.1)."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256().digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(root_of(leaves[:split]), root_of(leaves[split:]))


def included(leaf, leaf_index, tree_size, path, root):
    """Verifies an inclusion path with the steps of RFC 9162 2.1.3.2. All hashes are raw bytes."""
    if leaf_index >= tree_size:
        return False
    fn, sn, r = leaf_index, tree_size - 1, leaf
    for p in path:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            r = node_hash(p, r)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = node_hash(r, p)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and r == root


# ---- The checks

class Report:
    def __init__(self, issuer="given"):
        self.checks = []
        self.claims = []          # see verdict.claims
        self.issuer = issuer      # who named the keys: "given" by the user, "file" for the verified file itself, or a URL
        self.development = False  # the signing key is declared a development key
        self.alone = True         # the certificate came without its bundle
        self.policy = None
        self.parties = []         # per party: {party, status, detail} of the claim `agreed`
        self.origin = None        # of the deployment for which seat keys signed; None if none did
        self.closed = None        # what the closing shows, see closing.py; None if the bundle has none
        self.late = None          # how the times contradict the declaration
        self.early = None         # how the beacon round of the draw could be out before the last reveal
        self.opened = None        # indexes of the parties whose commitments were opened; None if no opening is known
        self.recomputed = False   # the result was recomputed from the inputs of all parties
        self.supposed = False     # the result was recomputed as if all parties accepted whose inputs are missing
        self.bound = False        # the hash of the beacon chain in the bundle is that of its key and its other values
        self.chain = None         # name of the beacon chain, known beforehand, that signed the round

    def add(self, name, problem, good=""):
        """Adds a check. problem says what is wrong, and is None or "" if the check passed."""
        self.checks.append({"name": name, "ok": not problem, "detail": problem or good})

    def valid(self):
        return all(check["ok"] for check in self.checks)

    def checked(self, name):
        """Reports whether the check was made and passed."""
        return any(check["name"] == name and check["ok"] for check in self.checks)

    def judge(self, certificate):
        self.claims = verdict.claims(self, certificate)
        return self

    def exit_code(self):
        if not self.valid():
            return EXIT_FAILED
        return EXIT_GOOD if self.claims[0]["status"] == verdict.PROVEN else EXIT_UNKNOWN_ISSUER


def keys_of(document):
    """Returns the keys in an answer of /v1/pubkeys or of /v1/status. Keys from /v1/status have no state. Raises jcs.Refused for any other document."""
    if type(document) is dict and "keys" in document:
        bad = shape.key_set_problem(document)
        if bad:
            raise jcs.Refused("the key set " + bad)
        return document["keys"]
    if shape.STATUS(document):
        raise jcs.Refused("the document is neither a key set with `keys` nor a status (%s)" % shape.STATUS(document))
    current = {"pubkey": document["pubkey"], "development": document.get("dev_ephemeral_key") is True}
    return [current] + document["legacy_pubkeys"]


def signed_by(keys, message, signature):
    """Returns (problem, None, "") or (None, the key that verifies, its description)."""
    if shape.SIGNATURE(signature):
        return "the signature is malformed; it must be `es256:` or `ed25519:`, followed by 128 lower-case hex digits", None, ""
    for i, key in enumerate(keys):
        if signatures.verify(key["pubkey"], message, signature):
            return None, key, "key %d of %d, %s" % (i + 1, len(keys), key["pubkey"])
    return "the signature does not verify under any of the %d keys (an es256 signature must be low-S)" % len(keys), None, ""


def may_hold(key, leaf_index):
    """Reports whether the key was allowed to sign this leaf. A key that retired at a tree size may sign only leaves below that index."""
    return key.get("state") != "retired" or "tree_size" not in key or leaf_index < key["tree_size"]


def in_force(key, head_key, leaf_index, head_size):
    """Returns (problem, description) for the keys that signed the certificate and the tree head. A head of n leaves covers the leaves 0 to n-1."""
    for what, of in (("certificate", key), ("tree head", head_key)):
        if of is None:
            return "not checked, because no trusted key signed the %s" % what, ""
    for what, of, leaf, place in (("certificate", key, leaf_index, "leaf %d" % leaf_index),
                                  ("tree head", head_key, head_size - 1, "a head of size %d" % head_size)):
        if not may_hold(of, leaf):
            return ("the key of the %s retired at tree size %d, so it must not sign %s: "
                    "somebody used the key after it retired" % (what, of["tree_size"], place)), ""
    words = lambda of: of.get("state", "a key given without its state") + (
        " at tree size %d" % of["tree_size"] if "tree_size" in of else "")
    return None, "certificate: %s; tree head: %s" % (words(key), words(head_key))


def verify(certificate, head, keys, inputs=None, params=None, known=None, openings=(), issuer="given"):
    """Makes all checks of a certificate in parsed JSON. keys: rows of a key set, or labels without a state.

    inputs: list of {input, salt} in party order, with null for an unknown input. known: seat keys by party index.
    openings: opening files, {deal_id, party, input, salt} each. issuer: see Report.
    """
    report = Report(issuer)
    if not check_certificate(report, certificate, head, keys, known):
        return report.judge(None)
    check_openings(report, certificate, [inputs], openings, params)
    return report.judge(certificate)


def check_certificate(report, certificate, head, keys, known, chain=None):
    """Makes the checks that need no inputs. Returns False if the certificate is malformed.

    chain: the `beacon` member of a bundle, needed for a chain other than drand quicknet.
    """
    keys = [{"pubkey": k} if type(k) is str else k for k in keys]
    misshapen = shape.CERTIFICATE(certificate)
    report.add("shape", misshapen and "the certificate " + misshapen)
    labels = [k["pubkey"] for k in keys]
    report.add("keys", next(("%.80s: %s" % (k, signatures.key_problem(k)) for k in labels if signatures.key_problem(k)),
                            None if keys else "no key to verify with"))
    certificate = certificate if type(certificate) is dict else {}
    payload = jcs.encode({k: v for k, v in certificate.items() if k not in ("signature", "log_proof")})
    problem, key, found = signed_by(keys, payload, certificate.get("signature"))
    report.add("signature", problem, found)

    bad_head, head_key = shape.TREE_HEAD(head), None
    if bad_head:
        report.add("tree_head_signature", "the tree head " + bad_head)
    else:
        message = jcs.encode({"tree_size": head["tree_size"], "root_hash": head["root_hash"]})
        problem, head_key, found = signed_by(keys, message, head["signature"])
        report.add("tree_head_signature", problem, found)
    if misshapen:
        for name in ("key_in_force", "tree_size", "merkle_inclusion", "input_root_wellformed", "consistency"):
            report.add(name, "not checked, because the shape is wrong")
        return False

    proof = certificate["log_proof"]
    report.add("key_in_force", *in_force(key, head_key, proof["leaf_index"], 0 if bad_head else head["tree_size"]))
    report.development = bool(key and key.get("development"))
    if bad_head:
        report.add("tree_size", "no usable tree head")
        report.add("merkle_inclusion", "no usable tree head")
    else:
        same = proof["tree_size"] == head["tree_size"]
        report.add("tree_size", None if same else "log_proof has tree_size %d, but the tree head has %d" % (
            proof["tree_size"], head["tree_size"]), str(head["tree_size"]))
        path = [bytes.fromhex(p) for p in proof["inclusion_path"]]
        leaf = leaf_hash(hashlib.sha256(payload).digest())
        good = included(leaf, proof["leaf_index"], proof["tree_size"], path, bytes.fromhex(head["root_hash"]))
        report.add("merkle_inclusion", None if good else "leaf_index and inclusion_path do not lead to root_hash",
                   "leaf %d of %d" % (proof["leaf_index"], proof["tree_size"]))
    root, computed = certificate["input_root"], certificate["outcome"] == "COMPUTED"
    report.add("input_root_wellformed", "COMPUTED without input_root" if root is None and computed else
               root is not None and shape.SHA256(root) and "input_root " + shape.SHA256(root), root or "null, VOID")
    report.add("consistency", "; ".join(shape.contradictions(certificate)))
    if computed and algorithms.draws(certificate["algorithm"]):
        report.add("draw", draw_problem(certificate), "recomputed from beacon and nonce_digest")
        check_beacon(report, certificate["result"], chain)
    seats.check(report, certificate, known or {})
    return True


# ---- Bundles

def verify_bundle(bundle, keys=None, policy=None, known=None, inputs=None, openings=(), issuer="given"):
    """Makes all checks of a bundle.

    keys: labels of the deployment's keys, or None to take those in the bundle. policy: notes.Policy or None.
    known, inputs, openings, issuer: as in verify.
    """
    report = Report(issuer if keys is not None else "file")
    report.alone, report.policy = False, policy
    bad = shape.BUNDLE(bundle)
    if not bad:
        try:
            named = keys_of(bundle["keys"])
        except jcs.Refused as e:
            bad = "`keys`: %s" % e
    report.add("bundle", bad and "the bundle " + bad)
    if bad:
        return report.judge(None)
    keys = [{"pubkey": k} if type(k) is str else k for k in (named if keys is None else keys)]
    certificate, declaration = bundle["certificate"], bundle.get("declaration")
    if not check_certificate(report, certificate, bundle["tree_head"], keys, known, bundle.get("beacon")):
        return report.judge(None)
    check_log_proof(report, bundle, keys, policy)
    seats.check_declaration(report, declaration, certificate, closing.seal_times(bundle))
    closing.check(report, bundle, declaration if declaration and report.checked("declaration") else {}, policy,
                  lambda note: checkpoint_signer(note, keys, policy)[0],
                  lambda entry, index, path, note: included(leaf_hash(entry), index, note.size, path, note.root))
    if "beacon" in bundle:
        shown = (certificate["result"] or {}).get("beacon")
        shown = shown.get("chain_hash") if type(shown) is dict else None
        of = bundle["beacon"]["chain_hash"]
        report.bound = closing.chain_hash(bundle["beacon"]) == of
        problem = None
        if of != shown:
            problem = "the bundle has the key of beacon chain %s, but the result was not drawn from that chain" % of
        elif not report.bound and (of == QUICKNET[0] or "genesis_seed" in bundle["beacon"] or "beacon_id" in bundle["beacon"]):
            problem = "the key and the other values of the beacon in the bundle do not hash to its chain_hash"
        report.add("beacon_chain", problem, of)
    own = check_own_input(report, bundle.get("own_input"), certificate)
    declared = declaration["algorithm_params"] if declaration and report.checked("declaration") else None
    check_openings(report, certificate, [bundle.get("openings"), inputs], list(openings) + own, declared)
    return report.judge(certificate)


QUICKNET = closing.QUICKNET


def check_beacon(report, result, chain):
    """Checks the beacon's signature. The key of drand quicknet is pinned. The key of any other chain comes from the bundle."""
    shown = result.get("beacon") if type(result) is dict else None
    shown = shown if type(shown) is dict else {}
    name, key, problem = "drand quicknet", QUICKNET[1], None
    if shown.get("chain_hash") != QUICKNET[0]:
        if not chain:
            return
        name, key = "the chain of the bundle, checked with the key in the bundle,", chain["public_key"]
        period, genesis = chain.get("period"), chain.get("genesis_time")
        if type(period) is not int or not 1 <= period < 2**32:
            problem = "the beacon period %s is outside [1, 2^32-1]" % period
        elif type(genesis) is not int or genesis < 0:
            problem = "the beacon genesis %s is no unix time" % genesis
    elif chain and chain["public_key"] != key:
        problem = "the beacon key in the bundle is not the key of drand quicknet"
    number, signature = shown.get("round"), shown.get("signature")
    if not problem and not (type(number) is int and 0 < number < 2**53 and type(signature) is str and bls.signed(key, number, signature)):
        problem = "the signature of the round does not verify"
    report.add("beacon_signature", problem, "%s signed round %s" % (name, number))
    if not problem and shown.get("chain_hash") == QUICKNET[0]:
        report.chain = name


def check_log_proof(report, bundle, keys, policy):
    certificate, head = bundle["certificate"], bundle["tree_head"]
    if "log_proof" not in bundle:
        if policy is not None:
            report.add("witnesses", "the bundle has no log_proof, so it contains no cosignatures")
        return
    try:
        index, path, note = notes.parse_proof(bundle["log_proof"])
    except notes.Refused as e:
        report.add("log_proof", "log_proof is malformed: %s" % e)
        return
    payload = jcs.encode({k: v for k, v in certificate.items() if k not in ("signature", "log_proof")})
    own, problem = certificate["log_proof"]["leaf_index"], None
    if index != own:
        problem = "the proof is for leaf %d, but the certificate is at leaf %d" % (index, own)
    elif not included(leaf_hash(hashlib.sha256(payload).digest()), index, note.size, path, note.root):
        problem = "the path does not lead from the certificate at leaf %d to the root of the checkpoint" % index
    elif not shape.TREE_HEAD(head) and head["tree_size"] == note.size and head["root_hash"] != note.root.hex():
        problem = "the tree head and the checkpoint have the same size but different roots: the log is forked"
    report.add("log_proof", problem, "leaf %d of %d in %s" % (index, note.size, note.origin))
    problem, good = checkpoint_signer(note, keys, policy)
    report.add("checkpoint_signature", problem, good)
    if policy is None:
        return
    if problem:
        report.add("witnesses", "not checked, because no trusted key signed the checkpoint")
        return
    try:
        cosigned = policy.cosigned(note)
    except notes.Refused as e:
        report.add("witnesses", str(e))
        return
    problem = None
    if not policy.met(cosigned):
        problem = "the quorum of witnesses is not met: cosigned by %s" % cosigned
        unchecked = policy.unchecked(note)
        if policy.met(cosigned + unchecked):
            problem = ("not checked, because the quorum depends on ML-DSA-44 cosignatures, which this program "
                       "cannot verify: by %s; see fairpactctl verify" % ", ".join(unchecked))
    report.add("witnesses", problem,
               "the policy requires no cosignatures" if policy.quorum == "none" else "cosigned by " + ", ".join(cosigned))


def checkpoint_signer(note, keys, policy):
    """Returns (problem, description) for the signer of the checkpoint.

    With a policy, the signer must be one of its logs. Without one, the signer must be a deployment key that was valid at this size.
    """
    logs = [k for k in policy.logs if k.name == note.origin] if policy else []
    deployment = [(k, notes.deployment_key(note.origin, k["pubkey"])) for k in keys if not signatures.key_problem(k["pubkey"])]
    try:
        by = note.signed(logs + [of for _, of in deployment if of])
    except notes.Refused as e:
        return str(e), ""
    if not by:
        return "the checkpoint carries no signature by a known key of its log", ""
    for key in by:
        if key in logs:
            return None, "signed by %s, a log of the policy" % key
    if policy:
        return "no log of the policy signed the checkpoint", ""
    for k, of in deployment:
        if of in by and may_hold(k, note.size - 1):
            return None, "signed by the deployment's key %s; no policy was given, so the log's own key was not checked" % k["pubkey"]
    return "a retired key signed the checkpoint, whose size is above the tree_size of that key", ""


def check_own_input(report, own, certificate):
    """Returns the opening in own_input, if it opens the party's commitment, as a list of at most one opening file."""
    if own is None:
        return []
    party, parties = own["party"], certificate["parties"]
    if party >= len(parties):
        report.add("own_input", "own_input names party %d, but the certificate has %d parties, counted from 0" % (party, len(parties)))
        return []
    held = [name for name in ("input", "salt") if name in own]
    if not held:
        return []
    if len(held) == 1:
        report.add("own_input", "own_input has only one of input and salt")
        return []
    data = opening(parties[party]["commitment"], own)
    report.add("own_input", None if data is not None else
               "the input and salt do not open the commitment of party %d" % party, "of party %d" % party)
    found = [] if data is None else [dict(own, deal_id=certificate["deal_id"])]
    root, path = certificate["input_root"], own.get("input_path")
    if root is None and path is None:
        return found
    if root is None:
        problem = "own_input has an input_path, but the input_root of the certificate is null"
    elif path is None:
        problem = "own_input has no input_path"
    elif data is None:
        problem = "not checked, because the input and salt do not open the commitment"
    else:
        good = not shape.SHA256(root) and included(leaf_hash(data), party, len(parties),
                                                   [bytes.fromhex(p) for p in path], bytes.fromhex(root[7:]))
        problem = None if good else "input_path does not lead from the input to input_root"
    report.add("input_path", problem, "party %d of %d" % (party, len(parties)))
    return found


def draw_problem(certificate):
    shown = certificate["result"]
    labels = [p["label"] for p in certificate["parties"]]
    of = algorithms.KNOWN[certificate["algorithm"]]
    try:
        algorithms.check_labels(labels, of.PARTIES)
        again = of.redraw(labels, shown)
    except ValueError as e:
        return str(e)
    return None if jcs.encode(again) == jcs.encode(shown) else "the recomputed result is %s" % jcs.encode(again).decode()


def opening(commitment, sealed):
    """Returns the bytes (canonical input, then salt) whose hash is the commitment, or None."""
    salt = sealed.get("salt") or ""
    readings = [salt.encode("utf-8")]
    if re.fullmatch("([0-9a-fA-F]{2})+", salt):
        readings.append(bytes.fromhex(salt))
    for reading in readings:
        data = jcs.encode(sealed["input"]) + reading
        if commitment == "sha256:" + hashlib.sha256(data).hexdigest():
            return data
    return None


def check_openings(report, certificate, lists, files, params):
    """Opens the commitments with all openings that are known and, once all are open, recomputes input_root and the result.

    lists: lists of {input, salt} in party order, with null for an unknown input; a list may be None. files: opening
    files. params: the declared algorithm_params, or None.
    """
    parties, of = certificate["parties"], algorithms.KNOWN[certificate["algorithm"]]
    known = [[] for _ in parties]
    for rows in lists:
        bad = None if rows is None else shape.INPUTS(rows)
        if bad or rows is not None and len(rows) != len(parties):
            return report.add("commitments", "the list of inputs " + (bad or "has %d elements, but there are %d parties" % (len(rows), len(parties))))
        for party, row in enumerate(rows or []):
            if row is not None:
                known[party].append(row)
    for file in files:
        if file["deal_id"] != certificate["deal_id"] or file["party"] >= len(parties):
            return report.add("commitments", "the opening of party %d in deal %.80s does not belong to this deal" % (file["party"], file["deal_id"]))
        known[file["party"]].append(file)
    opened = [rows and [opening(p["commitment"], row) for row in rows] for p, rows in zip(parties, known)]
    closed = [i for i, data in enumerate(opened) if None in data]
    if any(known):
        report.opened = {i for i, data in enumerate(opened) if data and None not in data}
        report.add("commitments", "the input and salt of parties %s do not open the commitments" % verdict.few(closed) if closed else None,
                   "%d of %d opened" % (len(report.opened), len(parties)))
    complete = any(known) and all(known) and not closed and certificate["input_root"] is not None
    if complete:
        root = "sha256:" + root_of([leaf_hash(data[0]) for data in opened]).hex()
        report.add("input_root", None if root == certificate["input_root"] else "the root computed from the inputs is not input_root", root)
    liar = falsely_rejected(certificate, {i: known[i][0]["input"] for i in report.opened or ()})
    if liar is not None:
        report.add("result", "the certificate says that party %d rejected, but its input does not reject" % liar)
    elif not complete:
        # If every input of a COMPUTED deal is an acceptance, the params alone give the result. A known input
        # stands for itself: it may be a rejection that the operator hid.
        if certificate["outcome"] == "COMPUTED" and hasattr(of, "ACCEPTED") and params is not None and not closed:
            problem = result_problem(certificate, [rows[0]["input"] if rows else of.ACCEPTED for rows in known], params)
            report.add("result", problem, "byte for byte as recomputed")
            report.supposed = not problem
    elif params is not None:
        problem = result_problem(certificate, [rows[0]["input"] for rows in known], params)
        report.add("result", problem, "byte for byte as recomputed")
        report.recomputed = not problem and root == certificate["input_root"]
    return None


def falsely_rejected(certificate, inputs):
    """Returns a party that a VOID names as one that rejected, although its input does not reject, or None.

    inputs: the open inputs by party. A VOID has an input_root only after a rejection.
    """
    if not algorithms.rejects(certificate["algorithm"]) or certificate["input_root"] is None and "void:rejected" not in certificate["properties"]:
        return None
    return next((i for i in certificate["void_flakers"] or () if i in inputs and not algorithms.rejected(certificate["algorithm"], inputs[i])), None)


def result_problem(certificate, inputs, params):
    of, shown, labels = algorithms.KNOWN[certificate["algorithm"]], certificate["result"], [p["label"] for p in certificate["parties"]]
    try:
        algorithms.check_labels(labels, of.PARTIES)
        again = of.result(labels, params, inputs, (shown or {}).get("beacon"))
        if again is None and certificate["void_flakers"] != of.rejectors(inputs):
            return "void_flakers are not the parties that rejected"
    except ValueError as e:
        return "the result cannot be recomputed: %s" % e
    return None if jcs.encode(again) == jcs.encode(shown) else "the recomputed result is %s" % jcs.encode(again).decode()


# ---- The command line

def read(path, depth=32):
    with open(path, "rb") as file:
        return named(path, file.read(), depth)


def named(source, data, depth=32):
    try:
        return jcs.parse(data, depth)
    except jcs.Refused as e:
        raise jcs.Refused("%s: %s" % (source, e)) from None


def opening_file(path):
    """Returns the opening of one party. The file may hold more members."""
    file = read(path, 34)
    bad = shape.OPENING(file)
    if bad:
        raise jcs.Refused("%s: the opening %s: a file {deal_id, party, input, salt} is needed" % (path, bad))
    return file


def fetch(url):
    import urllib.request
    from http.client import HTTPException
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return named(url, response.read(1 << 24))
    except HTTPException as e:
        raise OSError("%s: %s" % (url, type(e).__name__)) from None


def fetch_head(base, certificate):
    """Returns the tree head that has the tree_size of the proof. If the log has no such head, returns the newest head."""
    import urllib.error
    head = fetch(base + "/v1/log/tree-head")
    proof = certificate.get("log_proof") if type(certificate) is dict else None
    size = proof.get("tree_size") if type(proof) is dict else None
    if type(head) is not dict or type(size) is not int or head.get("tree_size") == size:
        return head
    try:
        return fetch("%s/v1/log/tree-head?tree_size=%d" % (base, size))
    except urllib.error.HTTPError as e:
        if e.code >= 500 or e.code == 429:
            raise
        return head  # the log has no head of that size: the check tree_size fails and says so


def fetch_keys(base):
    """Returns the keys of /v1/pubkeys. Only /v1/status marks development keys."""
    current = keys_of(fetch(base + "/v1/status"))[0]
    return [dict(key, **current) if key["pubkey"] == current["pubkey"] else key for key in keys_of(fetch(base + "/v1/pubkeys"))]


def printable(line):
    """Returns the line without control characters: labels and member names come from strangers and must not forge a line or colour it."""
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in line).rstrip()


def party_key(text):
    index, _, key = text.partition("=")
    if not re.fullmatch("[0-9]{1,5}", index) or signatures.key_problem(key):
        raise argparse.ArgumentTypeError("%r is not N=KEY: give a party's index and its seat key, such as 1=ed25519:HEX" % text)
    return int(index), key


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Verifies a Fairpact certificate. Exit code: 0 issued by a key that you gave, and nothing is false; "
                                     "1 something is false; 2 wrong usage or something unreadable; 4 consistent, but the issuer is unknown.")
    parser.add_argument("--certificate", metavar="FILE")
    parser.add_argument("--bundle", metavar="FILE", help="the answer of /v1/deals/{id}/bundle; nothing is fetched")
    parser.add_argument("--receipt", metavar="FILE", help="receipt file of a timelock seal; with --certificate or --bundle, whether that contradicts it")
    parser.add_argument("--relay", metavar="URL", default="https://api.drand.sh", help="fetch the round of --receipt here; its signature is verified")
    parser.add_argument("--policy", metavar="FILE", help="trust policy for a bundle's witnesses (c2sp.org/tlog-policy)")
    parser.add_argument("--tree-head", metavar="FILE")
    parser.add_argument("--keys", metavar="FILE", help="the key set: the answer of /v1/pubkeys (or of /v1/status)")
    parser.add_argument("--status", metavar="FILE", help="the answer of /v1/status, whose keys have no states")
    parser.add_argument("--base-url", metavar="URL", help="fetch the tree head and the keys from this deployment, unless they are given")
    parser.add_argument("--pubkey", action="append", metavar="KEY",
                        help="trust this key for every leaf, instead of a key set; repeatable")
    parser.add_argument("--inputs", metavar="FILE", help="JSON list of {input, salt} in party order, with null for an unknown input")
    parser.add_argument("--opening", action="append", metavar="FILE", default=[],
                        help="opening of one party, {deal_id, party, input, salt}, as its page or fairpactctl keeps it; repeatable")
    parser.add_argument("--params", metavar="FILE", help="algorithm_params of the deal, to recompute the result from --inputs")
    parser.add_argument("--seat-key", action="append", metavar="N=KEY", type=party_key, default=[],
                        help="require that party N signed with this seat key; repeatable")
    parser.add_argument("--deal", metavar="ID", help="require that the certificate is of this deal")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    if given.receipt and given.certificate and given.bundle:
        parser.error("--receipt takes only one of --certificate and --bundle")
    if given.receipt and given.deal:
        parser.error("--deal needs --certificate or --bundle without --receipt")
    if given.receipt:
        return receipt_main(given)
    if bool(given.certificate) == bool(given.bundle):
        parser.error("give exactly one of --certificate and --bundle")
    if given.bundle:
        return bundle_main(parser, given)
    if given.policy:
        parser.error("--policy works only with --bundle, not with --certificate")
    base = (given.base_url or "").rstrip("/")
    if base and not re.match("https?://", base):
        parser.error("--base-url must begin with http:// or https://")
    if not base and not (given.tree_head and (given.keys or given.status or given.pubkey)):
        parser.error("the tree head or the keys are missing: give --base-url, or --tree-head with --keys, --status or --pubkey")
    if given.keys and given.status:
        parser.error("give only one of --keys and --status")
    if given.params and not given.inputs:
        parser.error("--params needs --inputs")
    try:
        certificate = read(given.certificate)
        head = read(given.tree_head) if given.tree_head else fetch_head(base, certificate)
        keys = given.pubkey
        if not keys:
            file = given.keys or given.status
            keys = keys_of(read(file)) if file else fetch_keys(base)
        inputs = read(given.inputs, 34) if given.inputs else None  # the list and {input, salt} are two levels around each input
        params = read(given.params) if given.params else None
        openings = [opening_file(path) for path in given.opening]
        if given.inputs and type(inputs) is not list or given.params and type(params) is not dict:
            raise jcs.Refused("the file of --inputs must hold a JSON array, and the file of --params a JSON object")
    except (OSError, ValueError) as e:
        print("verify: %s" % e, file=sys.stderr)
        return EXIT_UNREADABLE
    issuer = base if keys and not (given.pubkey or given.keys or given.status) else "given"
    report = verify(certificate, head, keys, inputs, params, dict(given.seat_key), openings, issuer)
    return show(report, given.json, decided(report, certificate, {}, given.deal))


def receipt_main(given):
    report = Report()
    try:
        file = read(given.receipt)
        stated, chain = receipt.parsed(file), receipt.chain_of(file)
        document = read(given.certificate or given.bundle, 34) if given.certificate or given.bundle else None
        drawn = fetch("%s/%s/public/%d" % (given.relay.rstrip("/"), chain[0], stated["round"]))
        signature = drawn.get("signature") if type(drawn) is dict else None
        if type(signature) is not str or not re.fullmatch("[0-9a-f]{96}", signature):
            raise jcs.Refused("the relay's answer has no signature of the round")
    except (OSError, ValueError) as e:
        print("verify: %s" % e, file=sys.stderr)
        return EXIT_UNREADABLE
    keys = given.pubkey or [k for k in [file.get("pubkey")] if type(k) is str]
    sealed = receipt.check(report, file, keys, signature)
    if document is not None:
        report.add("certificate", receipt.contradiction(stated, sealed, document), "it does not contradict the receipt")
    report.claims = [{"claim": "issued", "status": verdict.PROVEN if given.pubkey else verdict.OPEN,
                      "detail": "by a key that you gave" if given.pubkey else "by a key that the file names; give the key of the deployment with --pubkey"}]
    return show(report, given.json)


def bundle_main(parser, given):
    if given.tree_head or given.params or given.base_url:
        parser.error("--bundle excludes --tree-head, --params and --base-url: a bundle holds its own tree head and params, and nothing is fetched")
    try:
        bundle = read(given.bundle, 34)  # the bundle and own_input are two levels around the input
        keys = given.pubkey
        if not keys and (given.keys or given.status):
            keys = keys_of(read(given.keys or given.status))
        inputs = read(given.inputs, 34) if given.inputs else None
        openings = [opening_file(path) for path in given.opening]
        if given.inputs and type(inputs) is not list:
            raise jcs.Refused("the file of --inputs must hold a JSON array")
        policy = None
        if given.policy:
            with open(given.policy, encoding="utf-8") as file:
                policy = notes.Policy(file.read())
    except (OSError, ValueError) as e:
        print("verify: %s" % e, file=sys.stderr)
        return EXIT_UNREADABLE
    report, members = verify_bundle(bundle, keys, policy, dict(given.seat_key), inputs, openings), bundle if type(bundle) is dict else {}
    return show(report, given.json, decided(report, members.get("certificate"), members, given.deal))


MOST_PARTIES = 16  # in a verdict


def short(value, most=200):
    """Returns a text, or the JSON of another value, with at most so many characters."""
    text = value if type(value) is str else jcs.encode(value).decode()
    return text if len(text) <= most else text[:most] + "..."


def decided(report, certificate, bundle, deal):
    """Returns which deal the certificate decides, and how, for a reader who expects another one. The certificate may be malformed.

    deal: the deal that the reader requires, or None.
    """
    members = certificate if type(certificate) is dict else {}
    if deal is not None:
        other = "the certificate is of deal %s, not of %s" % (short(members.get("deal_id")), deal)
        report.add("deal", None if members.get("deal_id") == deal else other, deal)
    rows, log = members.get("parties"), ""
    rows = rows if type(rows) is list else []
    try:
        log = notes.parse_proof(bundle["log_proof"])[2].origin
    except (KeyError, TypeError, AttributeError, notes.Refused):
        pass  # a bundle may lack it, and the check log_proof says whether it is malformed
    labels = [short(row.get("label") if type(row) is dict else None) for row in rows[:MOST_PARTIES]]
    return {"deal_id": short(members.get("deal_id")), "algorithm": short(members.get("algorithm")), "outcome": short(members.get("outcome")),
            "parties": len(rows), "labels": labels, "result": short(members.get("result")), "log": short(log)}


def show(report, machine, of=None):
    if machine:
        json.dump({**(of or {}), "valid": report.valid(), "checks": report.checks, "claims": report.claims}, sys.stdout, indent=2)
        print()
    else:
        for check in report.checks:
            print(printable("%-4s %-22s %s" % ("OK" if check["ok"] else "FAIL", check["name"], check["detail"])))
        if of:
            labels = ["%d %s" % (i, json.dumps(label)) for i, label in enumerate(of["labels"])]
            labels += ["and %d more" % (of["parties"] - len(labels))] if of["parties"] > len(labels) else []
            for name, text in (("certificate of deal", "%(deal_id)s, %(algorithm)s, %(outcome)s" % of), ("parties", ", ".join(labels)), ("result", of["result"]), ("log", of["log"])):
                if text:
                    print(printable("%-23s %s" % (name, text)))
        for claim in report.claims:
            print(printable("%-14s %-8s %s" % (claim["status"], claim["claim"], claim["detail"])))
            for party in claim.get("parties", [])[:16]:
                print(printable("%-14s %-8s party %d: %s" % ("", "", party["party"], party["detail"])))
        print({EXIT_GOOD: "valid", EXIT_FAILED: "NOT VALID", EXIT_UNKNOWN_ISSUER: "CONSISTENT, ISSUER UNKNOWN"}[report.exit_code()])
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
