"""A signer, a log and one deal for the tests only."""

import hashlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import jcs  # noqa: E402
import signatures  # noqa: E402
import verify  # noqa: E402


def toy_add(a, b):
    """Adds affine points of P-256. None is the point at infinity."""
    if a is None or b is None:
        return a or b
    p = signatures.P
    if a[0] == b[0]:
        if (a[1] + b[1]) % p == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, p)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, p)
    x = (slope * slope - a[0] - b[0]) % p
    return x, (slope * (a[0] - x) - a[1]) % p


def toy_multiply(scalar):
    total, point = None, signatures.G[:2]
    while scalar:
        if scalar & 1:
            total = toy_add(total, point)
        point, scalar = toy_add(point, point), scalar >> 1
    return total


class ToyKey:
    def __init__(self, secret):
        self.secret = secret
        x, y = toy_multiply(secret)
        self.public = "es256:%02x%064x" % (2 + (y & 1), x)

    def sign(self, message, high=False):
        n, e = signatures.N, int.from_bytes(hashlib.sha256(message).digest(), "big")
        k = int.from_bytes(hashlib.sha512(b"k%d" % self.secret + message).digest(), "big") % (n - 1) + 1
        r = toy_multiply(k)[0] % n
        s = (e + r * self.secret) * pow(k, -1, n) % n
        return "es256:%064x%064x" % (r, n - s if (s > n // 2) != high else s)


class ToyEd25519:
    def __init__(self, seed):
        h = hashlib.sha512(seed).digest()
        self.a = (int.from_bytes(h[:32], "little") & (2**254 - 8)) | 2**254
        self.prefix = h[32:]
        self.raw = self.encode(self.a)
        self.public = "ed25519:" + self.raw.hex()

    @staticmethod
    def encode(scalar):
        x, y, z, _ = signatures._ed25519_multiply(scalar, signatures.ED25519_BASE)
        x, y = (v * pow(z, -1, signatures.Q) % signatures.Q for v in (x, y))
        return (y | (x & 1) << 255).to_bytes(32, "little")

    def sign(self, message):
        number = lambda *parts: int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % signatures.L
        r = number(self.prefix, message)
        point = self.encode(r)
        s = (r + number(point, self.raw, message) * self.a) % signatures.L
        return "ed25519:" + (point + s.to_bytes(32, "little")).hex()


def H(data):
    return hashlib.sha256(data).digest()


def tree(leaves):
    """Returns the Merkle tree hash of leaf data (RFC 6962 2.1, MTH)."""
    if len(leaves) == 1:
        return H(b"\x00" + leaves[0])
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return H(b"\x01" + tree(leaves[:k]) + tree(leaves[k:]))


def path(m, leaves):
    """Returns the audit path PATH(m, D[n]) of RFC 6962 2.1.1."""
    if len(leaves) == 1:
        return []
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    if m < k:
        return path(m, leaves[:k]) + [tree(leaves[k:])]
    return path(m - k, leaves[k:]) + [tree(leaves[:k])]


KEY, OLD_KEY, ED_KEY = ToyKey(0x1234567), ToyKey(0x89ABCDEF), ToyEd25519(b"retired")
KEYS = [KEY.public, OLD_KEY.public, ED_KEY.public]
STATUS = {"status": "ok", "service": "fairpact", "version": "0", "pubkey": KEYS[0], "key_custody": "test",
          "legacy_pubkeys": KEYS[1:], "dev_ephemeral_key": True, "note": ""}


def key_set(*rows):
    """Returns a key set of rows (key, state) or (key, state, more members)."""
    return {"keys": [dict({"pubkey": row[0].public, "state": row[1]}, **(row[2] if row[2:] else {})) for row in rows]}


def payload(certificate):
    return jcs.encode({k: v for k, v in certificate.items() if k not in ("signature", "log_proof")})


def issue(certificate, index=11, size=21, key=KEY, head_key=KEY):
    """Signs the certificate and puts it into a log of other leaves; returns it with the tree head."""
    certificate = dict(certificate, signature=key.sign(payload(certificate)))
    leaves = [H(b"leaf %d" % i) for i in range(size)]
    leaves[index] = H(payload(certificate))
    certificate["log_proof"] = {"tree_size": size, "leaf_index": index,
                                "inclusion_path": [p.hex() for p in path(index, leaves)]}
    return certificate, signed_head(size, tree(leaves), head_key)


def signed_head(size, root, key=KEY):
    head = {"tree_size": size, "root_hash": root.hex()}
    return dict(head, signature=key.sign(jcs.encode(head)))


def commitment(sealed):
    return "sha256:" + H(jcs.encode(sealed["input"]) + sealed["salt"].encode()).hex()


# Brams and Taylor's own example, the Trump divorce (Fair Division, 1996): each party gets 72.67 of its 100 points.
PARAMS = {"items": ["connecticut", "palm beach", "plaza", "tower", "cash"]}
INPUTS = [
    {"input": {"valuations": dict(zip(PARAMS["items"], [10, 40, 10, 38, 2]))}, "salt": "pepper é"},
    {"input": {"valuations": dict(zip(PARAMS["items"], [38, 20, 30, 10, 2]))}, "salt": "00ff"},
]
DIVORCE = {
    "method": "adjusted_winner",
    "shares": [
        {"party": 0, "label": "Donald", "value_ppb": 726666666,
         "items": [{"item": "palm beach", "share": "13/15"}, {"item": "tower", "share": "1"}]},
        {"party": 1, "label": "Ivana", "value_ppb": 726666666,
         "items": [{"item": "connecticut", "share": "1"}, {"item": "palm beach", "share": "2/15"},
                   {"item": "plaza", "share": "1"}, {"item": "cash", "share": "1"}]},
    ],
}
COMPUTED = {
    "cert_version": "1", "cert_id": "c_1", "deal_id": "d_1", "outcome": "COMPUTED", "algorithm": "split.v1",
    "mode": "sealed", "retention": "purge",
    "parties": [{"index": i, "label": label, "commitment": commitment(INPUTS[i]), "attested_by": "initiator"}
                for i, label in enumerate(["Donald", "Ivana"])],
    "input_root": "sha256:" + tree([jcs.encode(s["input"]) + s["salt"].encode() for s in INPUTS]).hex(),
    "result": DIVORCE, "void_flakers": None,
    "properties": ["inputs-committed-before-reveal", "deterministic-recomputable", "logged", "inputs-purged"],
    "timing": {"created_at": 1, "commits_closed_at": 2, "reveals_closed_at": 3, "computed_at": 4},
    "tee_attestation": None,
}
VOID = dict(
    COMPUTED, outcome="VOID", result=None, void_flakers=[1], input_root=None,
    parties=[COMPUTED["parties"][0], dict(COMPUTED["parties"][1], commitment=None)],
    timing={"created_at": 1, "commits_closed_at": None, "reveals_closed_at": None, "computed_at": None},
)


def failed(certificate, head, keys=KEYS, **more):
    """Returns the names of the failed checks. keys: labels, or a document with the keys. Returns {"unreadable"} if the document is not readable."""
    try:
        keys = keys if type(keys) is list else verify.keys_of(keys)
    except jcs.Refused:
        return {"unreadable"}
    return {c["name"] for c in verify.verify(certificate, head, keys, **more).checks if not c["ok"]}
