"""Verifies rounds of drand's scheme bls-unchained-g1-rfc9380: BLS12-381, signatures in G1, keys in G2.

This module handles no secret, so nothing runs in constant time. One verification takes about a second.
"""

import functools
import hashlib
import re

P = 0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB
R = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001  # order of the groups
X = 0xD201000000010000  # the curve's parameter is -X
DST = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"


class F2:
    """a + b*u of Fp2, with u*u = -1. Elements of Fp have b = 0."""

    def __init__(self, a, b=0):
        self.a, self.b = a % P, b % P

    def __add__(self, o):
        return F2(self.a + o.a, self.b + o.b)

    def __sub__(self, o):
        return F2(self.a - o.a, self.b - o.b)

    def __mul__(self, o):
        return F2(self.a * o.a - self.b * o.b, self.a * o.b + self.b * o.a)

    def __eq__(self, o):
        return (self.a, self.b) == (o.a, o.b)

    def over(self, o):
        n = pow(o.a * o.a + o.b * o.b, -1, P)
        return self * F2(o.a * n, -o.b * n)

    def root(self):
        """Returns a square root, or None."""
        if not self.b:
            a = root(self.a)
            return F2(a) if a is not None else F2(0, root(-self.a))
        n = root(self.a * self.a + self.b * self.b)
        for n in () if n is None else (n, -n):
            a = root((self.a + n) * (P + 1) // 2)
            if a is not None:
                return F2(a, self.b * pow(2 * a, -1, P))
        return None


def root(a):
    """Returns a square root in Fp, or None."""
    found = pow(a, (P + 1) // 4, P)
    return found if found * found % P == a % P else None


# ---- Points are (x, y) over F2, None is the point at infinity.

def slope(p, q):
    if p[0] == q[0]:
        return (p[0] * p[0] * F2(3)).over(p[1] * F2(2))
    return (q[1] - p[1]).over(q[0] - p[0])


def add(p, q):
    if p is None or q is None:
        return p or q
    if p[0] == q[0] and not p[1] == q[1]:
        return None
    m = slope(p, q)
    x = m * m - p[0] - q[0]
    return x, m * (p[0] - x) - p[1]


def times(k, p):
    total = None
    for bit in bin(k)[2:]:
        total = add(total, total)
        if bit == "1":
            total = add(total, p)
    return total


def negated(p):
    return p[0], F2(0) - p[1]


G2 = (F2(0x024AA2B2F08F0A91260805272DC51051C6E47AD4FA403B02B4510B647AE3D1770BAC0326A805BBEFD48056C8C121BDB8,
         0x13E02B6052719F607DACD3A088274F65596BD0D09920B61AB5DA61BBDC7F5049334CF11213945D57E5AC7D055D042B7E),
      F2(0x0CE5D527727D6E118CC9CDC6DA2E351AADFD9BAA8CBDD3A76D429A695160D12C923AC9CC3BACA289E193548608B82801,
         0x0606C4A02EA734CC32ACD2B02BC28B99CB3E287E85A763AF267492AB572E99AB3F370D275CEC1DA1AAA9075FF05F79BE))


def point(encoded, size):
    """Returns the point of a compressed encoding of 48 (G1) or 96 bytes (G2), or None if it is not in the group of order R."""
    if len(encoded) != size or encoded[0] >> 5 not in (4, 5):
        return None
    parts = [int.from_bytes(encoded[i:i + 48], "big") for i in range(0, size, 48)]
    parts[0] &= (1 << 381) - 1
    if max(parts) >= P:
        return None
    x = F2(*reversed(parts))
    y = (x * x * x + (F2(4, 4) if size == 96 else F2(4))).root()
    if y is None or size == 48 and y.b:
        return None
    p = (x, y) if ((y.b or y.a) > P // 2) == (encoded[0] >> 5 == 5) else negated((x, y))
    return p if times(R, p) is None else None


# ---- The hash to G1 (RFC 9380, suite BLS12381G1_XMD:SHA-256_SSWU_RO_)

def expanded(message, length):
    """Returns expand_message_xmd of a message (RFC 9380 5.3.1)."""
    tail = DST + bytes([len(DST)])
    first = hashlib.sha256(bytes(64) + message + length.to_bytes(2, "big") + b"\0" + tail).digest()
    out = block = hashlib.sha256(first + b"\1" + tail).digest()
    for i in range(2, length // 32 + 1):
        block = hashlib.sha256(bytes(a ^ b for a, b in zip(first, block)) + bytes([i]) + tail).digest()
        out += block
    return out


# RFC 9380 8.8.1: the isogenous curve y^2 = x^3 + A*x + B, and Z.
A = 0x144698a3b8e9433d693a02c96d4982b0ea985383ee66a8d8e8981aefd881ac98936f8da0e0f97f5cf428082d584c1d
B = 0x12e2908d11688030018b12e8753eee3b2016c1f0f24f4070a0b9c14fcef35ef55a23215a316ceaa5d1cc48e98e172be0
Z = 11
# RFC 9380 E.2: the coefficients of x_num, x_den, y_num and y_den, from degree 0 on, 96 hex digits each.
ISOGENY = (
    "11a05f2b1e833340b809101dd99815856b303e88a2d7005ff2627b56cdb4e2c85610c2d5f2e62d6eaeac1662734649b717294ed3e943ab2f"
    "0588bab22147a81c7c17e75b2f6a8417f565e33c70d1e86b4838f2a6f318c356e834eef1b3cb83bb0d54005db97678ec1d1048c5d10a9a1b"
    "ce032473295983e56878e501ec68e25c958c3e3d2a09729fe0179f9dac9edcb01778e7166fcc6db74e0609d307e55412d7f5e4656a8dbf25"
    "f1b33289f1b330835336e25ce3107193c5b388641d9b68610e99726a3199f4436642b4b3e4118e5499db995a1257fb3f086eeb65982fac18"
    "985a286f301e77c451154ce9ac8895d91630c3250d7313ff01d1201bf7a74ab5db3cb17dd952799b9ed3ab9097e68f90a0870d2dcae73d19"
    "cd13c1c66f6529830d6ed6553fe44d296a3726c38ae652bfb11586264f0f8ce19008e218f9c86b2a8da25128c1052ecaddd7f225a139ed84"
    "17b81e7701abdbe2e8743884d1117e53356de5ab275b4db1a682c62ef0f2753339b7c8f8c8f475af9ccb5618e3f0c88e080d3cf1f9a78fc4"
    "7b90b33563be990dc43b756ce79f5574a2c596c928c5d1de4fa295f296b74e956d71986a8497e317169b1f8e1bcfa7c42e0c37515d138f22"
    "dd2ecb803a0c5c99676314baf4bb1b7fa3190b2edc0327797f241067be390c9e10321da079ce07e272d8ec09d2565b0dfa7dccdde6787f96"
    "d50af36003b14866f69b771f8c285decca67df3f1605fb7b06e08c248e260e70bd1e962381edee3d31d79d7e22c837bc23c0bf1bc24c6b68"
    "c24b1b80b64d391fa9c8ba2e8ba2d22908ca8d548cff19ae18b2e62f4bd3fa6f01d5ef4ba35b48ba9c9588617fc8ac62b558d681be343df8"
    "993cf9fa40d21b1c12561a5deb559c4348b4711298e536367041e8ca0cf0800c0126c2588c48bf5713daa8846cb026e9e5c8276ec82b3bff"
    "0b2962fe57a3225e8137e629bff2991f6f89416f5a718cd1fca64e00b11aceacd6a3d0967c94fedcfcc239ba5cb83e1903425581a58ae2fe"
    "c83aafef7c40eb545b08243f16b1655154cca8abc28d6fd04976d5243eecf5c4130de8938dc62cd813a8e162022914a80a6f1d5f43e7a07d"
    "ffdfc759a12062bb8d6b44e833b306da9bd29ba81f35781d539d395b3532a21e0e7355f8e4e667b955390f7f0506c6e9395735e9ce9cad4d"
    "0a43bcef24b8982f7400d24bc4228f11c02df9a29f6304a50772caacf16936190f3e0c63e0596721570f5799af53a1894e2e073062aede9c"
    "ea73b3538f0de06cec2574496ee84a3a14a7ac2a9d64a8b230b3f5b074cf01996e7f63c21bca68a81996e1cdf9822c580fa5b9489d11e2d3"
    "11f7d99bbdcc5a5e0a10ecf6ada54f825e920b3dafc7a3cce07f8d1d7161366b74100da67f39883503826692abba43704776ec3a79a1d641"
    "095fc13ab9e92ad4476d6e3eb3a56680f682b4ee96f7d03776df533978f31c1593174e4b4b7865002d6384d168ecdd0a090d97c81ba24ee0"
    "259d1f094980dcfa11ad138e48a869522b52af6c956543d3cd0c7aee9b3ba3c2be9845719707bb33134996a104ee5811d51036d776fb4683"
    "1223e96c254f383d0f906343eb67ad34d6c56711962fa8bfe097e75a2e41c69600cc786baa966e66f4a384c86a3b49942552e2d658a31ce2"
    "c344be4b91400da7d26d521628b00523b8dfe240c72de1f601f86376e8981c217898751ad8746757d42aa7b90eeb791c09e4a3ec03251cf9"
    "de405aba9ec61deca6355c77b0e5f4cb08cc03fdefe0ff135caf4fe2a21529c4195536fbe3ce50b879833fd221351adc2ee7f8dc099040a8"
    "41b6daecf2e8fedb16603fca40634b6a2211e11db8f0a6a074a7d0d4afadb7bd76505c3d3ad5544e203f6326c95a807299b23ab13633a5f0"
    "04ab0b9bcfac1bbcb2c977d027796b3ce75bb8ca2be184cb5231413c4d634f3747a87ac2460f415ec961f8855fe9d6f20987c8d5333ab86f"
    "de9926bd2ca6c674170a05bfe3bdd81ffd038da6c26c842642f64550fedfe935a15e4ca31870fb2909fc4018bd96684be88c9e221e4da1bb"
    "8f3abd16679dc26c1e8b6e6a1f20cabe69d65201c78607a360370e577bdba5870e1bba7a1186bdb5223abde7ada14a23c42a0ca7915af6fe"
    "06985e7ed1e4d43b9b3f7055dd4eba6f2bafaaebca731c3019713e47937cd1be0dfd0b8f1d43fb93cd2fcbcb6caf493fd1183e416389e610"
    "31bf3a5cce3fbafce813711ad011c13218b46a908f36f6deb918c143fed2edcc523559b8aaf0c2462e6bfe7f911f643249d9cdf41b44d606"
    "ce07c8a4d0074d8e0b182cac101b9399d155096004f53f447aa7b12a3426b08ec02710e807b4633f06c851c1919211f20d4c04f00b971ef8"
    "0245a394ad1eca9b72fc00ae7be315dc757b3b080d4c158013e6632d3c40659cc6cf90ad1c232a6442d9d3f5db98013305c129645e44cf11"
    "02a159f748c4a3fc5e673d81d7e86568d9ab0f5d396a7ce46ba1049b6579afb7866b1e715475224b15e6be4e990f03ce4ea50b3b42df2eb5"
    "cb181d8f84965a3957add4fa95af01b2b665027efec01c7704b456be69c8b60416112c4c3a9c98b252181140fad0eae9601a6de578980be6"
    "eec3232b5be72e7a07f3688ef60c206d01479253b03663c11962d75c2381201e1a0cbd6c43c348b885c84ff731c4d59ca4a10356f453e01f"
    "78a4260763529e3532f6102c2e49a03d058df3306640da276faaae7d6e8eb15778c4855551ae7f310c35a5dd279cd2eca6757cd636f96f89"
    "1e2538b53dbf67f216b7d288798e5395f20d23bf89edb4d1d115c5dbddbcd30e123da489e726af41727364f2c28297ada8d26d98445f5416"
    "0be0e079545f43e4b00cc912f8228ddcc6d19c9f0f69bbb0542eda0fc9dec916a20b15dc0fd2ededda39142311a5001d08d9e5297186db2d"
    "9fb266eaac783182b70152c65550d881c5ecd87b6f0f5a6449f38db9dfa9cce202c6477faaf9b7ac166007c08a99db2fc3ba8734ace9824b"
    "5eecfdfa8d0cf8ef5dd365bc400a0051d5fa9c01a58b1fb93d1a1399126a775c16a3ef08be3ea7ea03bcddfabba6ff6ee5a4375efa1f4fd7"
    "feb34fd206357132b920f5b00801dee460ee415a15812ed91866c8ed336c61231a1be54fd1d74cc4f9fb0ce4c6af5920abc5750c4bf39b48"
    "52cfe2f7bb9248836b233d9d55535d4a167a55cda70a6e1cea820597d94a84903216f763e13d87bb5308592e7ea7d4fbc7385ea3d529b35e"
    "346ef48bb8913f5504d2f259eea405bd48f010a01ad2911d9c6dd039bb61a6290e591b36e636a5c871a5c29f4f83060400f8b49cba8f6aa8"
    "0accbb67481d033ff5852c1e48c50c477f94ff8aefce42d28c0f9a88cea7913516f968986f7ebbea9684b529e25610920ad6b9514c767fe3"
    "c3613144b45f1496543346d98adf02267d5ceef9a00d9b8693000763e3b90ac11e99b138573345cc02660400eb2e4f3b628bdd0d53cd76f2"
    "bf565b94e72927c1cb748df27942480e420517bd8714cc80d1fadc1326ed06f70e0fa1d816ddc03e6b24255e0d7819c171c40f65e273b853"
    "324efcd6356caa205ca2f570f13497804415473a1d634b8f"
)
COEFFICIENTS = iter(int(ISOGENY[i:i + 96], 16) for i in range(0, len(ISOGENY), 96))
X_NUM, X_DEN, Y_NUM, Y_DEN = ([next(COEFFICIENTS) for _ in range(n)] + rest for n, rest in ((12, []), (10, [1]), (16, []), (15, [1])))


def mapped(u):
    """Returns map_to_curve of a field element (RFC 9380 6.6.2 and 6.6.3)."""
    v = Z * u * u % P
    if (v * v + v) % P:
        x = -B * pow(A, -1, P) * (1 + pow(v * v + v, -1, P)) % P
    else:
        x = B * pow(Z * A, -1, P) % P
    y = root(x ** 3 + A * x + B)
    if y is None:
        x = v * x % P
        y = root(x ** 3 + A * x + B)
    if u % 2 != y % 2:
        y = P - y

    def at(polynomial):
        value = 0
        for coefficient in reversed(polynomial):
            value = (value * x + coefficient) % P
        return value

    return F2(at(X_NUM) * pow(at(X_DEN), -1, P)), F2(y * at(Y_NUM) * pow(at(Y_DEN), -1, P))


def hashed(message):
    random = expanded(message, 128)
    a, b = (mapped(int.from_bytes(random[i:i + 64], "big") % P) for i in (0, 64))
    return times(1 + X, add(a, b))


# ---- The pairing. Elements of Fp12 are polynomials in w with w^12 = 2*w^6 - 2, so that u = w^6 - 1.

def product(f, g):
    terms = [0] * 23
    for i, a in enumerate(f):
        if a:
            for j, b in enumerate(g):
                terms[i + j] += a * b
    for k in range(22, 11, -1):
        terms[k - 6] += 2 * terms[k]
        terms[k - 12] -= 2 * terms[k]
    return [c % P for c in terms[:12]]


ONE = [1] + [0] * 11


def line(m, t, p):
    """Returns the line of slope m through t of the twist, evaluated at p, times w^3. The final exponentiation removes that factor."""
    value = [0] * 12
    for power, c in ((0, m * t[0] - t[1]), (2, F2(0) - m * p[0]), (3, p[1])):
        value[power], value[power + 6] = c.a - c.b, c.b
    return value


def miller(p, q):
    """Returns the conjugate of the Miller loop of p in G1 and q in G2, because the loop runs over X instead of -X.

    The final exponentiation maps the conjugate to 1 exactly if it maps the true value to 1.
    """
    f, t = ONE, q
    for bit in bin(X)[3:]:
        f = product(product(f, f), line(slope(t, t), t, p))
        t = add(t, t)
        if bit == "1":
            f = product(f, line(slope(t, q), t, p))
            t = add(t, q)
    return f


@functools.lru_cache
def signed(key, number, signature):
    """Reports whether the signature of the round (hex, 48 bytes in G1) verifies under the public key (hex, 96 bytes in G2)."""
    if not re.fullmatch("[0-9a-f]{192}", key) or not re.fullmatch("[0-9a-f]{96}", signature):
        return False
    key, signature = point(bytes.fromhex(key), 96), point(bytes.fromhex(signature), 48)
    if key is None or signature is None:
        return False
    message = hashed(hashlib.sha256(number.to_bytes(8, "big")).digest())
    f, power = product(miller(signature, negated(G2)), miller(message, key)), ONE
    for bit in bin((P ** 12 - 1) // R)[2:]:
        power = product(power, power)
        if bit == "1":
            power = product(power, f)
    return power == ONE
