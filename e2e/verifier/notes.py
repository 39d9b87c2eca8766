"""Checkpoints of a transparency log: signed notes, trust policies and .tlog-proof files of C2SP.

c2sp.org/signed-note, tlog-checkpoint, tlog-cosignature, tlog-policy and tlog-proof.
"""

import base64
import hashlib
import re

import signatures

ED25519, ECDSA, COSIGNATURE, ML_DSA = 0x01, 0x02, 0x04, 0x06
SIZES = {ED25519: 32, ECDSA: 91, COSIGNATURE: 32, ML_DSA: 1312}  # bytes of a public key, by type
DER_P256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")  # the DER prefix of an uncompressed P-256 point
# A name is not empty, and has no plus sign, control character or Unicode space. The space class of a regex is another set in each language.
NAME = re.compile("[^\\x00-\\x20\\x7f-\\xa0+\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+")
LINE = re.compile("— (%s) ([A-Za-z0-9+/=]+)" % NAME.pattern)
MOST_LINES, MOST_BYTES = 100, 256 << 10  # of a note


class Refused(ValueError):
    pass


def b64(text):
    """Returns the bytes of base64, which must be canonical."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = None
    if data is None or base64.b64encode(data).decode() != text:
        raise Refused("%.60r is not base64" % text)
    return data


class Key:
    """A verifier key (vkey): its name, type, key ID and public key."""

    def __init__(self, name, kind, public):
        self.name, self.kind, self.public = name, kind, public
        material = public if kind == ECDSA else name.encode() + b"\n" + bytes([kind]) + public
        self.id = hashlib.sha256(material).digest()[:4]

    def __str__(self):
        return "%s+%s" % (self.name, self.id.hex())

    def verify(self, text, signature):
        if self.kind == ED25519:
            return signatures.ed25519_verify(self.public, text, signature)
        if self.kind == ECDSA:
            raw = der_signature(signature)
            return raw is not None and signatures.p256_verify(compressed(self.public), text, raw)
        if self.kind == COSIGNATURE and len(signature) == 72:
            time = int.from_bytes(signature[:8], "big")
            return time > 0 and signatures.ed25519_verify(self.public, b"cosignature/v1\ntime %d\n" % time + text, signature[8:])
        return False  # ML-DSA-44 is not supported here, so such a cosignature does not count


def parse_key(vkey):
    name, _, rest = vkey.partition("+")
    key_id, _, material = rest.partition("+")
    raw = b64(material)
    if not NAME.fullmatch(name) or not raw or len(raw) - 1 != SIZES.get(raw[0]):
        raise Refused("%.80r is not a verifier key" % vkey)
    key = Key(name, raw[0], raw[1:])
    if key.id.hex() != key_id:
        raise Refused("the key ID of %.80r is wrong" % vkey)
    return key


def deployment_key(name, label):
    """Returns the verifier key of an es256 label, or None for another scheme."""
    scheme, _, digits = label.partition(":")
    point = signatures.p256_point(bytes.fromhex(digits)) if scheme == "es256" else None
    if point is None:
        return None
    return Key(name, ECDSA, DER_P256 + b"\x04" + point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big"))


def compressed(der):
    return bytes([2 + (der[-1] & 1)]) + der[-64:-32]


def der_signature(der):
    """Returns r and the lower s, 32 bytes each, of an ASN.1 signature, or None if it is malformed."""
    match = re.fullmatch(rb"\x30(.)\x02(.)(.*)", der, re.S)
    if not match or match[1][0] != len(der) - 2:
        return None
    r, rest = match[3][:match[2][0]], match[3][match[2][0]:]
    if len(rest) < 2 or rest[0] != 2 or rest[1] != len(rest) - 2:
        return None
    r, s = int.from_bytes(r, "big"), int.from_bytes(rest[2:], "big")
    if r >= 1 << 256 or s >= signatures.N:
        return None
    return r.to_bytes(32, "big") + min(s, signatures.N - s).to_bytes(32, "big")


class Note:
    """A signed checkpoint: text, origin, size, root and lines of (name, key ID, signature)."""

    def __init__(self, text):
        body, blank, lines = text.rpartition("\n\n")
        self.text = body + "\n"
        parts = self.text.split("\n")
        if not blank or not lines.endswith("\n") or len(parts) != 4 or not NAME.fullmatch(parts[0]):
            raise Refused("not a signed checkpoint: it has no blank line before the signatures, or its origin cannot be the name of a key")
        if lines.count("\n") > MOST_LINES or len(text.encode()) > MOST_BYTES:
            raise Refused("the checkpoint has more than %d signature lines or %d bytes" % (MOST_LINES, MOST_BYTES))
        self.origin, size, root = parts[:3]
        if not re.fullmatch("0|[1-9][0-9]{0,18}", size):
            raise Refused("the checkpoint's size %.40r is not a number" % size)
        self.size, self.root, self.lines = int(size), b64(root), []
        if len(self.root) != 32:
            raise Refused("the checkpoint's root is not 32 bytes")
        for line in lines[:-1].split("\n"):
            match = LINE.fullmatch(line)
            data = b64(match[2]) if match else b""
            if len(data) < 5:
                raise Refused("%.60r is not a signature line" % line)
            self.lines.append((match[1], data[:4], data[4:]))

    def signed(self, keys):
        """Returns which of the given keys signed. Raises Refused if a signature by a given key is invalid, unless it is ML-DSA-44.

        Only the first line of a name and key ID counts.
        """
        by, first = [], {}
        for name, key_id, signature in self.lines:
            first.setdefault((name, key_id), signature)
        for (name, key_id), signature in first.items():
            for key in keys:
                if key.name == name and key.id == key_id:
                    if not key.verify(self.text.encode(), signature):
                        if key.kind == ML_DSA:
                            continue
                        raise Refused("invalid signature for key %s" % key)
                    by.append(key)
        return by


class Policy:
    """A tlog-policy: logs, witnesses by name, and the quorum."""

    def __init__(self, text):
        self.logs, self.witnesses, self.groups, self.quorum = [], {}, {}, None
        for number, line in enumerate(text.split("\n"), 1):
            fields = [f for f in re.split("[ \t]+", line) if f]
            if not fields or fields[0].startswith("#"):
                continue
            try:
                self.line(fields)
            except (Refused, ValueError, IndexError) as e:
                raise Refused("policy line %d: %s" % (number, e)) from None
        if self.quorum is None:
            raise Refused('the policy has no quorum line: add "quorum NAME" or "quorum none"')

    def line(self, fields):
        kind, name, rest = fields[0], fields[1], fields[2:]
        taken = name == "none" or name in self.witnesses or name in self.groups
        if kind == "log" and len(rest) < 2:
            self.logs.append(self.key(name, (ED25519, ECDSA), self.logs))
        elif kind == "witness" and 0 < len(rest) < 3 and not taken:
            self.witnesses[name] = self.key(rest[0], (COSIGNATURE, ML_DSA), self.witnesses.values())
        elif kind == "group" and len(rest) > 1 and not taken:
            members = rest[1:]
            inside = [m for of, _ in self.groups.values() for m in of]
            if any(m not in self.witnesses and m not in self.groups or m in inside for m in members) \
                    or len(set(members)) != len(members):
                raise Refused("a member of group %r is not defined on an earlier line, or is in a group already" % name)
            needs = {"all": len(members), "any": 1}.get(rest[0]) or int(rest[0])
            if not 1 <= needs <= len(members):
                raise Refused("the threshold of group %r is %s: write all, any or 1 to %d" % (name, rest[0], len(members)))
            self.groups[name] = (members, needs)
        elif kind == "quorum" and not rest and self.quorum is None and (name == "none" or taken):
            self.quorum = name
        else:
            raise Refused("%r is not a keyword of a policy with these fields, or the name %r is taken or not defined" % (kind, name))

    @staticmethod
    def key(vkey, kinds, others):
        key = parse_key(vkey)
        if key.kind not in kinds:
            raise Refused("a key of type 0x%02x does not belong on a line of this kind" % key.kind)
        if any(key.public == other.public for other in others):
            raise Refused("another line has the same public key")
        return key

    def met(self, cosigned, name=None):
        name = name or self.quorum
        if name == "none" or name in cosigned:
            return True
        members, needs = self.groups.get(name, ((), 1))
        return sum(self.met(cosigned, member) for member in members) >= needs

    def cosigned(self, note):
        by = note.signed(self.logs + list(self.witnesses.values()))
        return [name for name, key in self.witnesses.items() if key in by]

    def early(self, note, before):
        """Returns the note without the cosignatures of the policy's witnesses that have this unix time or a later one."""
        late = lambda name, key_id, signature: int.from_bytes(signature[:8], "big") >= before and any(
            key.name == name and key.id == key_id for key in self.witnesses.values())
        kept = Note.__new__(Note)
        kept.__dict__.update(note.__dict__, lines=[line for line in note.lines if not late(*line)])
        return kept

    def unchecked(self, note):
        """Returns the witnesses that have an ML-DSA-44 key and a signature line, valid or not, in the note."""
        lines = {(name, key_id) for name, key_id, _ in note.lines}
        return [name for name, key in self.witnesses.items() if key.kind == ML_DSA and (key.name, key.id) in lines]


def parse_proof(text):
    """Returns (index, path, note) of a tlog-proof@v1 without extra data."""
    head, blank, note = text.partition("\n\n")
    lines = head.split("\n")
    if not blank or lines[0] != "c2sp.org/tlog-proof@v1" or len(lines) < 2:
        raise Refused("not c2sp.org/tlog-proof@v1")
    match = re.fullmatch("index (0|[1-9][0-9]{0,18})", lines[1])
    path = [b64(line) for line in lines[2:]]
    if not match or len(path) > 63 or any(len(hash) != 32 for hash in path):
        raise Refused("not c2sp.org/tlog-proof@v1: its index or a hash of its path is malformed")
    return int(match[1]), path, Note(note)
