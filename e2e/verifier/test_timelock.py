import json
import os
import unittest

import closing as stated
import jcs
import signatures
import timelock

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testdata", "timelock.json")


class Timelock(unittest.TestCase):
    """Runs the vectors that package timelock and the page run too."""

    @classmethod
    def setUpClass(cls):
        with open(VECTORS, encoding="utf-8") as file:
            cls.vectors = json.load(file)

    def opened(self, seal):
        v = self.vectors
        return timelock.opened(seal, v["chain"]["chain_hash"], v["chain"]["public_key"], v["round"], v["signature"])

    def test_seals_open(self):
        rows = [(row["seal"], row["plaintext"]) for row in self.vectors["foreign"]]
        self.assertGreaterEqual(len(rows), 11)
        rows += [(row["seal"], row["text"] * row["times"]) for row in self.vectors["own"] if "seal" in row]
        self.assertGreaterEqual(len(rows), 14)
        for seal, plaintext in rows:
            self.assertEqual(self.opened(seal).decode(), plaintext)

    def test_chunks(self):
        # RFC 8439 2.8.2 has associated data, which age does not use. This is a chunk of age without it.
        key, nonce = bytes(range(32)), bytes(11) + b"\1"
        stream = timelock._block(key, 1, nonce)
        self.assertIsNone(timelock.chunk_opened(key, nonce, stream[:5] + bytes(16)))

    def test_chacha20(self):
        # RFC 8439 2.3.2
        block = timelock._block(bytes(range(32)), 1, bytes.fromhex("000000090000004a00000000"))
        self.assertEqual(block.hex(), "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
                                      "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e")

    def test_refused(self):
        self.assertGreaterEqual(len(self.vectors["refused"]), 40)
        for row in self.vectors["refused"]:
            with self.subTest(row["what"]), self.assertRaises(timelock.Refused):
                timelock.check(row["seal"], self.vectors["chain"]["chain_hash"], self.vectors["round"])

    def test_not_opened(self):
        self.assertGreaterEqual(len(self.vectors["not_opened"]), 10)
        for row in self.vectors["not_opened"]:
            with self.subTest(row["what"]), self.assertRaises(timelock.NotOpened):
                self.opened(row["seal"])
        v = self.vectors
        with self.assertRaises(timelock.NotOpened):
            timelock.round_key(v["chain"]["public_key"], v["round"] + 1, v["signature"])

    def test_rounds(self):
        chain = self.vectors["chain"]
        for deadline, number in self.vectors["rounds"]:
            self.assertEqual(timelock.round_of(chain["genesis_time"], chain["period"], deadline), number)

    def test_openings(self):
        for row in self.vectors["openings"]:
            with self.subTest(row["what"]):
                read = lambda: timelock.opening(row["plaintext"].encode(), row["deal_id"], row["party"], row["commitment"])
                if row["ok"]:
                    data, salt = read()
                    self.assertIn(jcs.encode(data), row["plaintext"].encode())
                else:
                    self.assertRaises(timelock.NotOpened, read)

    def test_receipt_and_closing(self):
        receipt, closing = self.vectors["receipt"], self.vectors["closing"]
        self.assertTrue(signatures.verify(receipt["pubkey"], receipt["text"].encode(), receipt["signature"]))
        lines = closing["text"].split("\n")
        rows = [(line.split()[0], line.split()[1] if line.split()[1] != "-" else None) for line in lines[5:-1]]
        chain, number = lines[3].split()
        self.assertEqual(stated.text(lines[1], lines[2], chain, int(number), rows).decode(), closing["text"])
        self.assertEqual(stated.entry(lines[1], lines[2], chain, int(number), rows).hex(), closing["entry"])


if __name__ == "__main__":
    unittest.main()
