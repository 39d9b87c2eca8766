"""Opens timelock seals: age files with one tlock stanza, as drand/tlock writes them.

A seal opens with the signature of its round. The encryption of the file key is that of Boneh and Franklin (section 4.2,
FullIdent) with the tags of drand/kyber. ChaCha20-Poly1305 is that of RFC 8439. Opening a seal takes about a second.
"""

import base64
import functools
import hashlib
import hmac
import re
import struct

import bls
import jcs

BEGIN, END = "-----BEGIN AGE ENCRYPTED FILE-----\n", "-----END AGE ENCRYPTED FILE-----\n"
CHUNK = 1 << 16
DELAY = 60  # seconds between commit_deadline and the round
MAX_SALT = 1024
HEADER = re.compile(rb"age-encryption\.org/v1\n-> tlock ([1-9][0-9]{0,15}) ([0-9a-f]{64})\n"
                    rb"([A-Za-z0-9+/]{64}\n[A-Za-z0-9+/]{64}\n[A-Za-z0-9+/]{43})\n---( ([A-Za-z0-9+/]{43})\n)")


class Refused(ValueError):
    """Raised for a text that is not a seal for the chain and the round."""


class NotOpened(ValueError):
    """Raised for a seal that does not open, or not to the opening of the commitment."""


def round_of(genesis, period, commit_deadline):
    """Returns the first round that is due at or after commit_deadline + DELAY."""
    return max(0, -((genesis - commit_deadline - DELAY) // period)) + 1


# ---- The form of a seal

def armored(raw):
    text = base64.b64encode(raw).decode()
    return BEGIN + "".join(text[i:i + 64] + "\n" for i in range(0, len(text), 64)) + END


def _unpadded(text):
    text = text.replace(b"\n", b"")
    raw = base64.b64decode(text + b"=" * (-len(text) % 4))
    if base64.b64encode(raw).rstrip(b"=") != text:
        raise Refused("base64 of the header has bits that are not 0")
    return raw


def check(seal, chain_hash, number):
    """Returns (header, mac, u, v, w, payload) of a seal, or raises Refused."""
    inner = seal[len(BEGIN):-len(END)]
    if not seal.startswith(BEGIN) or not seal.endswith(END) or not re.fullmatch("[A-Za-z0-9+/=\n]+", inner):
        raise Refused("not an age file in armor")
    try:
        raw = base64.b64decode(inner.replace("\n", ""), validate=True)
    except ValueError:
        raise Refused("the armor is not base64") from None
    if armored(raw) != seal:
        raise Refused("the armor is not in the canonical form")
    found = HEADER.match(raw)
    if not found:
        raise Refused("the header is not exactly one tlock stanza and a MAC")
    body, mac, payload = _unpadded(found[3]), _unpadded(found[5]), raw[found.end():]
    last = (len(payload) - 16) % (CHUNK + 16)
    if len(payload) < 32 or 0 < last < 16 or last == 16 and len(payload) > 32:
        raise Refused("the payload is cut")
    if found[2].decode() != chain_hash or int(found[1]) != number or number > jcs.MAX_INTEGER:
        raise Refused("for another chain or round")
    u = bls.point(body[:96], 96)
    if u is None:
        raise Refused("U is not a point of G2")
    return found[0][:-len(found[4])], mac, u, body[96:112], body[112:], payload


# ---- The encryption of the file key

def _conjugate(f):
    return [-c % bls.P if i % 2 else c for i, c in enumerate(f)]  # to the power P^6, because w to this power is -w


def _power(f, exponent):
    out = bls.ONE
    for bit in bin(exponent)[2:]:
        out = bls.product(out, out)
        if bit == "1":
            out = bls.product(out, f)
    return out


def pairing(p, q):
    """Returns the bytes of e(p, q)^3, which is the pairing of drand's libraries: the highest coefficient of the tower first."""
    f = _power(_conjugate(bls.miller(p, q)), 3 * ((bls.P ** 12 - 1) // bls.R))
    out = b""
    for odd in (1, 0):
        for k in (4, 2, 0):  # the coefficient of w^(k + odd) is a + b*u, with u = w^6 - 1
            b = f[k + odd + 6]
            out += b.to_bytes(48, "big") + ((f[k + odd] + b) % bls.P).to_bytes(48, "big")
    return out


def _digest16(tag, data):
    return hashlib.sha256(tag + data).digest()[:16]


def _xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def scalar(sigma, file_key):
    """Returns H3: the first SHA-256(u16le(i) + h), shifted by one bit in its first byte, below the order of the groups."""
    h, i = hashlib.sha256(b"IBE-H3" + sigma + file_key).digest(), 0
    while True:
        i += 1
        x = hashlib.sha256(i.to_bytes(2, "little") + h).digest()
        number = int.from_bytes(bytes([x[0] >> 1]) + x[1:], "big")
        if number < bls.R:
            return number


# ---- ChaCha20-Poly1305 (RFC 8439) and the payload of age

def _block(key, counter, nonce):
    start = struct.unpack("<16I", b"expand 32-byte k" + key + counter.to_bytes(4, "little") + nonce)
    s = list(start)
    for _ in range(10):
        for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                           (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            for x, y, z, shift in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                s[x] = (s[x] + s[y]) & 0xFFFFFFFF
                t = s[z] ^ s[x]
                s[z] = (t << shift | t >> (32 - shift)) & 0xFFFFFFFF
    return struct.pack("<16I", *((x + y) & 0xFFFFFFFF for x, y in zip(s, start)))


def chunk_opened(key, nonce, data):
    """Returns the plaintext of an encrypted chunk, or None."""
    once, text = _block(key, 0, nonce), data[:-16]
    r = int.from_bytes(once[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    padded, total = text + bytes(-len(text) % 16) + struct.pack("<QQ", 0, len(text)), 0
    for at in range(0, len(padded), 16):
        total = (total + int.from_bytes(padded[at:at + 16], "little") + (1 << 128)) * r % ((1 << 130) - 5)
    tag = (total + int.from_bytes(once[16:32], "little")) % (1 << 128)
    if not hmac.compare_digest(tag.to_bytes(16, "little"), data[-16:]):
        return None
    return b"".join(_xor(text[at:at + 64], _block(key, at // 64 + 1, nonce)) for at in range(0, len(text), 64))


def derived(file_key, salt, label):
    """Returns 32 bytes of HKDF-SHA256 (RFC 5869)."""
    return hmac.digest(hmac.digest(salt or bytes(32), file_key, "sha256"), label + b"\1", "sha256")


@functools.lru_cache
def round_key(public_key, number, signature):
    """Returns the point of a round's signature (hex) under a public key (hex), or raises NotOpened."""
    if not bls.signed(public_key, number, signature):
        raise NotOpened("the signature is not that of round %d" % number)
    return bls.point(bytes.fromhex(signature), 48)


def opened(seal, chain_hash, public_key, number, signature):
    """Returns the plaintext of a seal. Raises Refused or NotOpened."""
    header, mac, u, v, w, payload = check(seal, chain_hash, number)
    sigma = _xor(v, _digest16(b"IBE-H2", pairing(round_key(public_key, number, signature), u)))
    file_key = _xor(w, _digest16(b"IBE-H4", sigma))
    again = bls.times(scalar(sigma, file_key), bls.G2)
    if again is None or not (again[0] == u[0] and again[1] == u[1]):
        raise NotOpened("not sealed for this round under the key of the chain, or changed")
    if not hmac.compare_digest(mac, hmac.digest(derived(file_key, b"", b"header"), header, "sha256")):
        raise NotOpened("the MAC of the header is wrong")
    key, out, chunks = derived(file_key, payload[:16], b"payload"), [], payload[16:]
    for at in range(0, len(chunks), CHUNK + 16):
        chunk = chunks[at:at + CHUNK + 16]
        nonce = (at // (CHUNK + 16)).to_bytes(11, "big") + bytes([at + len(chunk) == len(chunks)])
        out.append(chunk_opened(key, nonce, chunk))
        if out[-1] is None:
            raise NotOpened("the payload was changed")
    return b"".join(out)


def opening(plaintext, deal_id, party, commitment):
    """Returns (input, salt) of a plaintext, or raises NotOpened if it is not the opening of the party's commitment."""
    try:
        value = jcs.parse(plaintext, 33)
    except jcs.Refused as e:
        raise NotOpened("the plaintext is %s" % e) from None
    if not isinstance(value, dict) or sorted(value) != ["deal_id", "input", "party", "salt"] or jcs.encode(value) != plaintext:
        raise NotOpened("the plaintext is not the canonical JSON of deal_id, input, party and salt")
    data, salt = value["input"], value["salt"]
    if not isinstance(data, dict) or not isinstance(salt, str) or len(salt.encode()) > MAX_SALT:
        raise NotOpened("input or salt has the wrong type or size")
    if value["deal_id"] != deal_id or type(value["party"]) is not int or value["party"] != party:
        raise NotOpened("for another deal or party")
    readings = [salt.encode()] + ([bytes.fromhex(salt)] if re.fullmatch("([0-9a-fA-F]{2})*", salt) else [])
    if commitment not in ["sha256:" + hashlib.sha256(jcs.encode(data) + s).hexdigest() for s in readings]:
        raise NotOpened("input and salt have another hash")
    return data, salt
