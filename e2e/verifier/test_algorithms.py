import glob
import os
import unittest

from toys import COMPUTED, DIVORCE, H, INPUTS, PARAMS, failed, issue, jcs
import bls
import verify
from algorithms import KNOWN, random_v1, shapley_v1, split_v1

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../internal/rules/algorithm/vectors/*.json")


class Algorithms(unittest.TestCase):
    # Round 12040883 of drand quicknet.
    BEACON = {
        "chain_hash": "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971", "round": 12040883,
        "randomness": "173df1f57805453a8d2015268205d68147de12cafc2f451f7bc6adadca3571b3",
        "signature": "929906c959032ab363c9f26570d215d66f5c06cb0c44fe508c12bb5839f04ec8"
                     "95bb6868e5b9ff13ab289bdb5266b394",
    }

    def split(self, items, *rows):
        inputs = [{"valuations": dict(zip(items, row))} for row in rows]
        got = split_v1.result(["p%d" % i for i in range(len(rows))], {"items": list(items)}, inputs)
        return [({i["item"]: i["share"] for i in s["items"]}, s["value_ppb"]) for s in got["shares"]]

    def test_adjusted_winner(self):
        self.assertEqual(split_v1.result(["Donald", "Ivana"], PARAMS, [s["input"] for s in INPUTS]), DIVORCE)
        half, ppb = "1/2", 500000000
        self.assertEqual(self.split("ab", [1, 0], [0, 5]), [({"a": "1"}, 10**9), ({"b": "1"}, 10**9)])
        self.assertEqual(self.split("ab", [1, 1], [3, 3]), [({"a": "1"}, ppb), ({"b": "1"}, ppb)])
        self.assertEqual(self.split("a", [7], [1]), [({"a": half}, ppb), ({"a": half}, ppb)])
        self.assertEqual(self.split("ab", [0, 0], [0, 0]), [({"a": half, "b": half}, 0)] * 2)
        self.assertEqual(self.split("ab", [0, 0], [3, 0]), [({"b": half}, 0), ({"a": "1", "b": half}, 10**9)])
        self.assertEqual(self.split("ab", [3, 0], [0, 0]), [({"a": "1", "b": half}, 10**9), ({"b": half}, 0)])
        self.assertEqual(self.split("abc", [50, 30, 20], [20, 30, 50]),
                         [({"a": "1", "b": half}, 650000000), ({"b": half, "c": "1"}, 650000000)])

        # Party 1 gives b the value 0, so item b comes before item a.
        self.assertEqual(self.split("ab", [3, 1], [3, 0]), [({"a": "3/7", "b": "1"}, 571428571),
                                                            ({"a": "4/7"}, 571428571)])

    def test_proportional(self):
        self.assertEqual(self.split("ab", [1, 1], [3, 0], [0, 0]),
                         [({"a": "1/3", "b": "1"}, 666666666), ({"a": "2/3"}, 666666666), ({}, 0)])
        self.assertEqual(self.split("ab", [1], [1], [2])[0], ({"a": "1/3", "b": "1/3"}, 333333333))

    def test_shapley(self):
        def shares(labels, values):
            got = shapley_v1.result(labels, {"coalition_values": values}, [])
            return got["total"], [(s["share"], s["payout"]) for s in got["shares"]]
        # Two right gloves and one left one: the textbook answer is 2/3, 1/6, 1/6.
        self.assertEqual(shares("lrs", {"l,r": 1, "l,s": 1, "l,r,s": 1}), (1, [("2/3", 1), ("1/6", 0), ("1/6", 0)]))
        self.assertEqual(shares("abc", {"0,1,2": 100}), (100, [("100/3", 34), ("100/3", 33), ("100/3", 33)]))
        self.assertEqual(shares("ba", {"b": 3, "a,b": 4}), (4, [("7/2", 4), ("1/2", 0)]))
        self.assertEqual(shares("ab", {"a": 3}), (0, [("3/2", 2), ("-3/2", -2)]))
        self.assertEqual(shares(["1", "0"], {"1": 5, "0,1": 5}), (5, [("5", 5), ("0", 0)]))
        for bad in ({"b,a": 1}, {"a,a": 1}, {"": 1}, {"c": 1}, {"a": 1, "0": 1}, {"a": -1}, {"a": True}):
            with self.assertRaises(ValueError):
                shares("ab", bad)

    def test_random(self):
        inputs = [{"nonce": "f"}, {"nonce": "0102"}, {"nonce": ""}]
        digest = H(b"\x01\x0d")
        seed = H(b"fairpact/random.v1\0" + bytes.fromhex(self.BEACON["chain_hash"]) + (12040883).to_bytes(8, "big")
                 + bytes.fromhex(self.BEACON["randomness"]) + digest)
        tickets = [H(seed + bytes([0, 0, 0, i])).hex() for i in range(3)]
        winner = min(range(3), key=lambda i: tickets[i])
        want = {"winner": winner, "label": "abc"[winner], "ticket": tickets[winner], "nonce_digest": digest.hex(),
                "beacon": self.BEACON}
        got = random_v1.result(list("abc"), {"beacon_round": 12040883}, inputs, self.BEACON)
        self.assertEqual(got, want)
        self.assertEqual(random_v1.nonce_digest([{"nonce": ""}, {"nonce": ""}]), H(b"").hex())
        self.assertEqual(random_v1.nonce_digest([{"nonce": "FF"}, {"nonce": "00ff"}]), H(b"\0\0").hex())
        self.assertEqual(random_v1.nonce_digest([{"nonce": "fff"}, {"nonce": ""}]), H(b"\x0f\xff").hex())
        for bad in ("0x1", "g", " 1", "1_0", "1\n", "0" * 1025, 5, None):
            with self.assertRaises(ValueError):
                random_v1.nonce_digest([{"nonce": bad}])
        with self.assertRaises(ValueError):
            random_v1.result(list("abc"), {"beacon_round": 1}, inputs, self.BEACON)
        for wrong in ({"randomness": "0" * 64}, {"round": 0}, {"round": -1}):
            with self.assertRaises(ValueError):
                random_v1.draw(list("abc"), dict(self.BEACON, **wrong), digest.hex())

    def test_draw_of_a_certificate(self):
        digest = random_v1.nonce_digest([{"nonce": "01"}, {"nonce": "02"}])
        drawn = dict(COMPUTED, algorithm="random.v1", result=random_v1.draw(["Donald", "Ivana"], self.BEACON, digest),
                     properties=["beacon-verified"])
        self.assertEqual(failed(*issue(drawn)), set())
        for name, value in (("winner", 1 - drawn["result"]["winner"]), ("ticket", "0" * 64), ("beacon", {}),
                            ("beacon", dict(self.BEACON, randomness="0" * 64)), ("beacon", dict(self.BEACON, round=5)),
                            ("nonce_digest", "x"), ("extra", 1), ("beacon", dict(self.BEACON, extra=1))):
            forged = failed(*issue(dict(drawn, result=dict(drawn["result"], **{name: value}))))
            self.assertEqual(forged, {"draw", "beacon_signature"} if type(value) is dict and value.get("round") == 5 else {"draw"})

    def test_beacon_signature(self):
        key, number, signature = verify.QUICKNET[1], self.BEACON["round"], self.BEACON["signature"]
        self.assertTrue(bls.signed(key, number, signature))
        infinity = "c0" + "00" * 47
        flipped = "b" + signature[1:]  # the other y
        for wrong in ((key, number + 1, signature), (key, number, flipped), (key, number, infinity), (key, number, "00" * 48),
                      (key, number, signature.upper()), ("c0" + "00" * 95, number, signature), (key[:-2], number, signature)):
            self.assertFalse(bls.signed(*wrong), wrong)

    def test_published_vectors(self):
        seen = set()
        for name in sorted(glob.glob(VECTORS)):
            with open(name, "rb") as file:
                vectors = jcs.parse(file.read())
            for vector in vectors if isinstance(vectors, list) else [vectors]:
                given, want = vector["input"], vector["expected_output"]
                got = KNOWN[vector["algorithm"]].result(given["party_labels"], given["algorithm_params"],
                                       given["party_inputs"], (want or {}).get("beacon"))
                with self.subTest(vector["vector_id"]):
                    self.assertEqual(jcs.encode(got), jcs.encode(want))
                seen.add(vector["algorithm"])
        self.assertEqual(seen, set(KNOWN))


if __name__ == "__main__":
    unittest.main()
