import json
import unittest

from toys import ToyKey, jcs, path, signatures, tree, verify


class CanonicalJSON(unittest.TestCase):
    def test_rfc_8785_strings(self):
        text = br'{"string":"\u20ac$\u000F\u000aA' + b"'" + br'\u0042\u0022\u005c\\\"\/","literals":[null, true,false]}'
        want = '{"literals":[null,true,false],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        self.assertEqual(jcs.encode(jcs.parse(text)), want.encode())

    def test_rfc_8785_sorting(self):
        text = (br'{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",'
                br'"\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",'
                br'"\u00f6":"Latin Small Letter O With Diaeresis"}')
        order = ["Carriage Return", "One", "Control", "Latin Small Letter O With Diaeresis", "Euro Sign",
                 "Emoji: Grinning Face", "Hebrew Letter Dalet With Dagesh"]
        self.assertEqual(list(json.loads(jcs.encode(jcs.parse(text))).values()), order)

    def test_escapes(self):
        self.assertEqual(jcs.encode("\b\t\n\f\r\x00\x1f\x7f\u2028/"),
                         b'"\\b\\t\\n\\f\\r\\u0000\\u001f\x7f\xe2\x80\xa8/"')

    def test_integers(self):
        self.assertEqual(jcs.encode(jcs.parse(b" [9007199254740991,-9007199254740991,-0,0] ")),
                         b"[9007199254740991,-9007199254740991,0,0]")

    def test_refused(self):
        for text in (b"1.0", b"1e2", b"1E2", b"-0.0", b"NaN", b"Infinity", b"-Infinity", b"9007199254740992",
                     b"-9007199254740992", b"1" * 5000, b"01", b"+1", b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}',
                     b'"\\ud800"', b'"\\udc00\\ud800"', b'{"\\ud83d":1}', b'"\xed\xa0\x80"', b'"\xff"', b'"\n"', b"",
                     b"{} {}", b"[1,]", b"\xef\xbb\xbf{}", b"[" * 33 + b"]" * 33, b"[" * 100000, b"'a'"):
            with self.subTest(text[:40]), self.assertRaises(jcs.Refused):
                jcs.parse(text)
        self.assertEqual(jcs.encode(jcs.parse(b"[" * 32 + b"]" * 32)), b"[" * 32 + b"]" * 32)


class P256(unittest.TestCase):
    # RFC 6979 A.2.5
    KEY = bytes.fromhex("0360fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6")
    R = "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
    S = "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"  # high
    TEST = ("f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367"
            "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083")

    def low(self):
        return bytes.fromhex(self.R) + (signatures.N - int(self.S, 16)).to_bytes(32, "big")

    def test_known_answers(self):
        self.assertTrue(signatures.p256_verify(self.KEY, b"sample", self.low()))
        self.assertTrue(signatures.p256_verify(self.KEY, b"test", bytes.fromhex(self.TEST)))
        self.assertFalse(signatures.p256_verify(self.KEY, b"samplf", self.low()))
        self.assertFalse(signatures.p256_verify(self.KEY, b"sample", bytes.fromhex(self.TEST)))
        self.assertFalse(signatures.p256_verify(b"\x02" + self.KEY[1:], b"sample", self.low()))

    def test_high_s_refused(self):
        self.assertFalse(signatures.p256_verify(self.KEY, b"sample", bytes.fromhex(self.R + self.S)))

    def test_ranges(self):
        for r, s in ((0, 1), (1, 0), (0, 0), (signatures.N, 1), (1, signatures.N), (2**256 - 1, 1)):
            raw = r.to_bytes(32, "big") + s.to_bytes(32, "big")
            self.assertFalse(signatures.p256_verify(self.KEY, b"sample", raw))
        r_plus_n = int.from_bytes(self.low()[:32], "big") + signatures.N
        self.assertGreater(r_plus_n, 2**256)  # r + N does not fit into 32 bytes

    def test_points(self):
        self.assertEqual(signatures.p256_point(self.KEY)[1] & 1, 1)
        p, half = signatures.P, (signatures.P - 1) // 2
        bad_x = next(x for x in range(1, 99) if pow(x**3 - 3 * x + signatures.B, half, p) != 1)
        for raw in (b"\x02" + bad_x.to_bytes(32, "big"), b"\x02" + signatures.P.to_bytes(32, "big"),
                    b"\x04" + self.KEY[1:], b"\x00" * 33, self.KEY[:32], self.KEY + b"\x00"):
            self.assertIsNone(signatures.p256_point(raw))

    def test_against_the_toy_signer(self):
        # The base point and its negative as keys reach the special cases of point addition.
        for secret in (1, 2, signatures.N - 1, 3, 0xDEADBEEF):
            key = ToyKey(secret)
            for message in (b"", b"a", b"b" * 200):
                self.assertTrue(signatures.verify(key.public, message, key.sign(message)))
                self.assertFalse(signatures.verify(key.public, message, key.sign(message, high=True)))
                self.assertFalse(signatures.verify(key.public, message + b"!", key.sign(message)))

    def test_labels(self):
        key, signature = "es256:" + self.KEY.hex(), "es256:" + self.low().hex()
        self.assertTrue(signatures.verify(key, b"sample", signature))
        for bad in (signature.upper(), "es256:" + signature[6:].upper(), signature[6:], signature + "0", signature[:-2],
                    signature + "\n", "ed25519:" + signature[6:], "ES256:" + signature[6:]):
            self.assertFalse(signatures.verify(key, b"sample", bad))
        for bad in ("es256:" + self.KEY.hex().upper(), self.KEY.hex(), key + "00", "es256:", "rsa:00",
                    "ed25519:" + key[6:]):
            self.assertIsNotNone(signatures.key_problem(bad))
            self.assertFalse(signatures.verify(bad, b"sample", signature))


class Ed25519(unittest.TestCase):
    # RFC 8032 7.1: key, message, signature
    VECTORS = [
        ("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
         "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595b"
         "be24655141438e7a100b"),
        ("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb430"
         "2aeeb00d291612bb0c00"),
        ("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
         "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716e"
         "d28dc027beceea1ec40a"),
    ]

    def test_known_answers(self):
        for key, message, signature in self.VECTORS:
            key, message, raw = bytes.fromhex(key), bytes.fromhex(message), bytes.fromhex(signature)
            self.assertTrue(signatures.ed25519_verify(key, message, raw))
            self.assertFalse(signatures.ed25519_verify(key, message + b"x", raw))
            for position in (0, 31, 32, 63):
                changed = bytearray(raw)
                changed[position] ^= 1
                self.assertFalse(signatures.ed25519_verify(key, message, bytes(changed)))
            s = int.from_bytes(raw[32:], "little") + signatures.L
            self.assertFalse(signatures.ed25519_verify(key, message, raw[:32] + s.to_bytes(32, "little")))

    def test_points(self):
        one = (1).to_bytes(32, "little")
        self.assertIsNotNone(signatures.ed25519_point(one))
        for raw in (one[:31] + b"\x80", signatures.Q.to_bytes(32, "little"), (2).to_bytes(32, "little"), one[:31]):
            self.assertIsNone(signatures.ed25519_point(raw))


class Merkle(unittest.TestCase):
    def test_all_proofs_of_all_trees(self):
        for size in range(1, 41):
            leaves = [b"%d" % i for i in range(size)]
            root = tree(leaves)
            self.assertEqual(verify.root_of([verify.leaf_hash(leaf) for leaf in leaves]), root)
            for index in range(size):
                proof, leaf = path(index, leaves), verify.leaf_hash(leaves[index])
                self.assertTrue(verify.included(leaf, index, size, proof, root))
                self.assertFalse(verify.included(leaf, index, size, proof + [root], root))
                self.assertFalse(verify.included(verify.leaf_hash(b"x"), index, size, proof, root))
                self.assertFalse(verify.included(leaf, size + index, size, proof, root))
                if proof:
                    self.assertFalse(verify.included(leaf, index, size, proof[:-1], root))
                    self.assertFalse(verify.included(leaf, (index + 1) % size, size, proof, root))
                    self.assertFalse(verify.included(leaf, index, size, [proof[0]] + proof, root))
                if len(proof) > 1:
                    self.assertFalse(verify.included(leaf, index, size, proof[::-1], root))

    def test_right_root_of_another_size(self):
        left, right = verify.leaf_hash(b"left"), verify.leaf_hash(b"right")
        root = verify.node_hash(left, right)
        self.assertTrue(verify.included(left, 0, 2, [right], root))
        self.assertFalse(verify.included(left, 0, 3, [right], root))
        self.assertTrue(verify.included(right, 1, 2, [left], root))
        self.assertFalse(verify.included(right, 0, 1, [left], root))

    def test_rfc_6962_roots(self):
        # Roots of the certificate-transparency reference tests: sizes 0, 1, 2 and 8.
        leaves = [bytes.fromhex(h) for h in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                                             "606162636465666768696a6b6c6d6e6f")]
        roots = {0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                 1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                 2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
                 8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"}
        for size, root in roots.items():
            self.assertEqual(verify.root_of([verify.leaf_hash(leaf) for leaf in leaves[:size]]).hex(), root)


if __name__ == "__main__":
    unittest.main()
