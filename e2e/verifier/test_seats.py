import json
import os
import unittest

import jcs
import seats
import signatures

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testdata", "attestations.json")


class Seats(unittest.TestCase):
    """Runs the vectors that fairpactctl and the page run too."""

    def setUp(self):
        with open(VECTORS, encoding="utf-8") as file:
            self.vectors = json.load(file)

    def test_declarations(self):
        self.assertGreaterEqual(len(self.vectors["declarations"]), 2)
        for row in self.vectors["declarations"]:
            self.assertEqual(jcs.encode(row["declaration"]).decode(), row["canonical"])
            self.assertEqual(seats.digest(row["declaration"]), row["sha256"])

    def test_signatures(self):
        self.assertGreaterEqual(len(self.vectors["seats"]), 2)
        for row in self.vectors["seats"]:
            by = seats.attested(row["attested_by"])
            of = lambda **other: seats.message(*[{**row, **other}[name] for name in (
                "origin", "deal_id", "party", "commitment", "declaration_sha256")])
            self.assertEqual(by["origin"], row["origin"])
            self.assertEqual(of().decode(), row["to_sign"])
            self.assertTrue(signatures.verify(by["key"], of(), by["signature"]))
            for other in ({"origin": "https://x"}, {"deal_id": "d"}, {"party": 9}, {"commitment": "sha256:"}, {"declaration_sha256": ""}):
                self.assertFalse(signatures.verify(by["key"], of(**other), by["signature"]))

    def test_forms(self):
        key = "ed25519:" + "0a" * 32
        self.assertEqual(seats.attested("initiator")["key"], None)
        self.assertEqual(seats.attested("initiator " + key), {"declared": True, "key": key, "signature": None, "origin": None})
        for text in ("", "initiator ", "initiator\n", "witness", "declared " + key, "initiator " + key.upper()):
            self.assertIsNone(seats.attested(text))


if __name__ == "__main__":
    unittest.main()
