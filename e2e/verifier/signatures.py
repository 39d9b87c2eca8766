"""Verifies labelled signatures: es256 (ECDSA P-256 with SHA-256, low-S) and ed25519 (RFC 8032).

This module only verifies: it handles no secret, so nothing has to run in constant time.
"""

import functools
import hashlib
import re

KEY_FORM = {"es256": re.compile("es256:[0-9a-f]{66}"), "ed25519": re.compile("ed25519:[0-9a-f]{64}")}
SIGNATURE_FORM = re.compile("(es256|ed25519):[0-9a-f]{128}")


def key_problem(key):
    """Returns None for a usable "<scheme>:<hex>" public key, and otherwise what is wrong with it."""
    scheme = key.partition(":")[0]
    if scheme not in KEY_FORM or not KEY_FORM[scheme].fullmatch(key):
        return "not es256: with 66 or ed25519: with 64 lower-case hex digits"
    raw = bytes.fromhex(key.partition(":")[2])
    point = p256_point(raw) if scheme == "es256" else ed25519_point(raw)
    if point is None:
        return "not a point of the curve"
    if scheme == "ed25519" and ed25519_small(point):
        return "a point of small order: anyone can sign under it"
    return None


@functools.lru_cache
def verify(key, message, signature):
    """Reports whether the signature of the message verifies under the key. Key and signature must have the same scheme."""
    scheme = key.partition(":")[0]
    if key_problem(key) or not SIGNATURE_FORM.fullmatch(signature) or signature.partition(":")[0] != scheme:
        return False
    raw_key, raw_signature = bytes.fromhex(key.partition(":")[2]), bytes.fromhex(signature.partition(":")[2])
    return (p256_verify if scheme == "es256" else ed25519_verify)(raw_key, message, raw_signature)


# ---- P-256: SEC 1, FIPS 186-5. Points are Jacobian (X, Y, Z); None is the point at infinity.

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
G = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
     0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5, 1)


def p256_point(compressed):
    """Returns the point of a 33-byte compressed SEC1 encoding, or None if it is not on the curve."""
    x = int.from_bytes(compressed[1:], "big")
    if len(compressed) != 33 or compressed[0] not in (2, 3) or x >= P:
        return None
    square = (x * x * x - 3 * x + B) % P
    y = pow(square, (P + 1) // 4, P)
    if y * y % P != square:
        return None
    return (x, y if y & 1 == compressed[0] & 1 else P - y, 1)


def p256_verify(key, message, signature):
    """Verifies ECDSA. key: 33 bytes SEC1; signature: r and s, 32 bytes each. Only the lower of s and N-s is accepted."""
    q = p256_point(key)
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    if q is None or len(signature) != 64 or not 0 < r < N or not 0 < s <= N // 2:
        return False
    e = int.from_bytes(hashlib.sha256(message).digest(), "big")
    w = pow(s, -1, N)
    u1, u2 = e * w % N, r * w % N
    table = (None, G, q, _p256_add(G, q))
    point = None
    for bit in range(255, -1, -1):  # u1*G + u2*Q, one bit of both at a time
        point = _p256_double(point)
        point = _p256_add(point, table[(u1 >> bit & 1) | (u2 >> bit & 1) << 1])
    return point is not None and point[0] * pow(point[2], -2, P) % P % N == r


def _p256_double(point):
    if point is None or point[1] == 0:
        return None
    x, y, z = point
    yy, zz = y * y % P, z * z % P
    s, m = 4 * x * yy % P, 3 * (x - zz) * (x + zz) % P
    x3 = (m * m - 2 * s) % P
    return (x3, (m * (s - x3) - 8 * yy * yy) % P, 2 * y * z % P)


def _p256_add(a, b):
    if a is None or b is None:
        return a or b
    (x1, y1, z1), (x2, y2, z2) = a, b
    zz1, zz2 = z1 * z1 % P, z2 * z2 % P
    u1, s1 = x1 * zz2 % P, y1 * z2 * zz2 % P
    h, r = (x2 * zz1 - u1) % P, (y2 * z1 * zz1 - s1) % P
    if h == 0:
        return _p256_double(a) if r == 0 else None
    hh = h * h % P
    hhh, v = h * hh % P, u1 * hh % P
    x3 = (r * r - hhh - 2 * v) % P
    return (x3, (r * (v - x3) - s1 * hhh) % P, h * z1 * z2 % P)


# ---- Ed25519: RFC 8032 5.1. Points are extended (X, Y, Z, T).

Q = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, Q) % Q


def ed25519_point(encoded):
    """Returns the point of a 32-byte encoding, or None if it is not on the curve or y is not reduced."""
    y = int.from_bytes(encoded, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if len(encoded) != 32 or y >= Q:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, Q) % Q
    x = pow(square, (Q + 3) // 8, Q)
    if x * x % Q != square:
        x = x * pow(2, (Q - 1) // 4, Q) % Q
    if x * x % Q != square or (x == 0 and sign):
        return None
    x = x if x & 1 == sign else Q - x
    return (x, y, 1, x * y % Q)


def ed25519_small(point):
    """Reports whether eight times the point is the identity."""
    for _ in range(3):
        point = _ed25519_add(point, point)
    return point[0] == 0 and point[1] == point[2]


def ed25519_verify(key, message, signature):
    """Verifies Ed25519 without the cofactor. key: 32 bytes; signature: R and S, 32 bytes each. S >= L is refused."""
    a, s = ed25519_point(key), int.from_bytes(signature[32:], "little")
    if a is None or len(signature) != 64 or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % L
    minus_a = (Q - a[0], a[1], 1, Q - a[3])
    x, y, z, _ = _ed25519_add(_ed25519_multiply(s, ED25519_BASE), _ed25519_multiply(k, minus_a))
    inverse = pow(z, -1, Q)
    x, y = x * inverse % Q, y * inverse % Q
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]


def _ed25519_add(a, b):
    e, f = (a[1] - a[0]) * (b[1] - b[0]) % Q, (a[1] + a[0]) * (b[1] + b[0]) % Q
    g, h = 2 * a[3] * b[3] * D % Q, 2 * a[2] * b[2] % Q
    e, f, g, h = f - e, h - g, h + g, f + e
    return (e * f % Q, g * h % Q, f * g % Q, e * h % Q)


def _ed25519_multiply(scalar, point):
    total = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            total = _ed25519_add(total, point)
        point, scalar = _ed25519_add(point, point), scalar >> 1
    return total


ED25519_BASE = ed25519_point((4 * pow(5, -1, Q) % Q).to_bytes(32, "little"))
