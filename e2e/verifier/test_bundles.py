import base64
import contextlib
import copy
import glob
import io
import json
import os
import tempfile
import unittest
import unittest.mock

import jcs
import notes
import rows
import verify

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testdata", "bundles", "*.json")


def vkey(name, kind, public):
    return "%s+%s" % (notes.Key(name, kind, public), base64.b64encode(bytes([kind]) + public).decode())


class Bundles(unittest.TestCase):
    """Runs the cases that fairpactctl and the page run too. Each forgery fails the same checks."""

    def test_cases(self):
        forged = good = 0
        for path in sorted(glob.glob(CASES)):
            with open(path, "rb") as file:
                case = jcs.parse(file.read(), 36)
            policy = notes.Policy(case["policy"]) if "policy" in case else None
            known = {int(party): key for party, key in case.get("parties", {}).items()}
            report = verify.verify_bundle(case["bundle"], case.get("pubkeys"), policy, known, openings=case.get("openings", ()))
            failed = [check for check in report.checks if not check["ok"]]
            with self.subTest(os.path.basename(path)):
                self.assertEqual(sorted(check["name"] for check in failed), sorted(case["failed"]))
                self.assertEqual(report.valid(), not case["failed"])
                self.assertIn(case.get("says", ""), "\n".join(one["detail"] for one in failed + report.claims))
                self.assertEqual({c["claim"]: c["status"] for c in report.claims}, case["claims"])
                self.assertEqual([row["status"] for row in report.claims[3]["parties"]], case["agreed"])
                self.assertEqual(report.exit_code(), 1 if failed else 0 if case["claims"]["issued"] == "proven" else 4)
            forged, good = forged + bool(failed), good + (not failed)
        self.assertGreaterEqual(forged, 20)
        self.assertGreaterEqual(good, 4)

    def test_rows(self):
        """The cases of the table of claims are what rows.py makes."""
        for name, text in rows.made().items():
            with self.subTest(name), open(os.path.join(os.path.dirname(CASES), name), encoding="utf-8") as file:
                self.assertEqual(file.read(), text)

    def test_foreign_beacon_chain(self):
        """A signature under the key of another chain is refused if the chain's period or genesis is out of range."""
        drawn = {"beacon": {"chain_hash": "0" * 64, "round": 7, "signature": "00"}}
        for period, genesis, good in ((3, 0, True), (1, 1, True), (2**32 - 1, 2**40, True), (0, 1, False), (-3, 1, False),
                                      (2**32, 1, False), (3, -1, False), (True, 1, False), (3, None, False), (None, 1, False)):
            report = verify.Report()
            with unittest.mock.patch.object(verify.bls, "signed", return_value=True):
                verify.check_beacon(report, drawn, {"chain_hash": "0" * 64, "public_key": "x", "period": period, "genesis_time": genesis})
            self.assertEqual([check["ok"] for check in report.checks], [good], (period, genesis))

    def test_a_certificate_alone_proves_no_draw(self):
        """It does not show reveal_deadline, before which the round may have been out."""
        bundle = rows.deal("random.v1", {"beacon_round": 12040883}, rows.NONCES)
        report = verify.verify(bundle["certificate"], bundle["tree_head"], [rows.toys.KEY.public], rows.NONCES, {"beacon_round": 12040883})
        self.assertEqual({c["claim"]: c["status"] for c in report.claims}["draw"], "not proven")
        self.assertTrue(report.valid())

    def test_which_deal(self):
        """A reader of the verdict sees which deal it is about, whatever a stranger wrote into the bundle, and can require one."""
        with open(os.path.join(os.path.dirname(CASES), "rows-split.json"), encoding="utf-8") as file:
            case = json.load(file)

        def run(bundle, *more):
            said = io.StringIO()
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file, contextlib.redirect_stdout(said):
                json.dump(bundle, file)
                file.flush()
                code = verify.main(["--bundle", file.name, "--pubkey", case["pubkeys"][0], *more])
            return code, said.getvalue()
        code, said = run(case["bundle"], "--deal", "d_rows")
        self.assertEqual(code, 0)
        for want in ("d_rows, split.v1, COMPUTED\n", '0 "Ann", 1 "Bob"', '{"method":"adjusted_winner"', " rows.example\n"):
            self.assertIn(want, said)
        of = json.loads(run(case["bundle"], "--json")[1])
        self.assertEqual([of["deal_id"], of["outcome"], of["labels"], of["parties"], of["log"]], ["d_rows", "COMPUTED", ["Ann", "Bob"], 2, "rows.example"])
        code, said = run(case["bundle"], "--deal", "d_other")
        self.assertEqual(code, 1)
        self.assertIn("FAIL deal ", said)
        forged = copy.deepcopy(case["bundle"])
        forged["certificate"]["parties"][0]["label"] = "\x1b[31m\n" + "x" * 5000
        code, said = run(forged)
        line = next(line for line in said.split("\n") if line.startswith("parties "))
        self.assertEqual(code, 1)
        self.assertLess(len(line), 500)
        self.assertIn("1b[31m", line)
        self.assertNotIn("\x1b", said)

    def test_policies(self):
        with open(os.path.join(os.path.dirname(CASES), "good.json"), "rb") as file:
            case = json.load(file)
        lines = case["policy"].split("\n")
        notes.Policy("# a comment\n\n  " + case["policy"])
        first, second = (notes.parse_key(line.split()[2]) for line in lines[1:3])
        again = vkey("another.example", notes.COSIGNATURE, first.public)
        notes.Policy("\n".join(lines[:1] + [lines[2], "witness w2 " + again, "quorum w2"]))
        for wrong in ("\n".join(lines[:3] + ["witness w2 " + again, "quorum w0"]),
                      "\n".join(lines[:1] * 2 + ["quorum none"]),
                      "\n".join(["log " + vkey("log.example", notes.COSIGNATURE, second.public), "quorum none"]),
                      "\n".join(lines[:2] + ["witness w2 " + vkey("w.example", notes.ED25519, second.public), "quorum w0"]),
                      "", "quorum w0\n", "log x\nquorum none\n", case["policy"] + "quorum none\n",
                      "\n".join(lines[:3] + ["group a 3 w0 w1", "quorum a"]),
                      "\n".join(lines[:3] + ["group a 0 w0 w1", "quorum a"]),
                      "\n".join(lines[:3] + ["group a any w0", "group b any w0", "quorum a"]),
                      "\n".join(lines[:3] + ["group none any w0", "quorum none"])):
            with self.subTest(wrong), self.assertRaises(notes.Refused):
                notes.Policy(wrong)
        policy = notes.Policy("\n".join(lines[:3] + ["group a any w0 w1", "quorum a"]))
        self.assertTrue(policy.met(["w1"]))
        self.assertFalse(policy.met([]))

    def test_ml_dsa_is_not_checked(self):
        """If the quorum depends on cosignatures that this verifier does not support, it says so and gives no verdict on the quorum."""
        with open(os.path.join(os.path.dirname(CASES), "good.json"), "rb") as file:
            case = json.load(file)
        name, public = "pq.example", bytes(1312)
        log = case["policy"].split("\n")[0]
        policy = notes.Policy("\n".join([log, "witness pq " + vkey(name, notes.ML_DSA, public), "quorum pq"]))
        data = base64.b64encode(notes.Key(name, notes.ML_DSA, public).id + bytes(2428)).decode()
        for line, says in (("", "is not met"), ("— %s %s\n" % (name, data), "not checked, because the quorum depends on ML-DSA-44")):
            bundle = dict(case["bundle"], log_proof=case["bundle"]["log_proof"] + line)
            report = verify.verify_bundle(bundle, case["pubkeys"], policy)
            check = next(check for check in report.checks if check["name"] == "witnesses")
            self.assertFalse(report.valid())
            self.assertIn(says, check["detail"])

    def test_notes_have_bounds(self):
        """At most 256 KiB, and an origin that can be the name of a key."""
        note = rows.deal("split.v1", {"items": ["house", "boat"]}, rows.POINTS)["log_proof"].partition("\n\n")[2]
        notes.Note(note)
        for wrong in (note + "— o.example %s\n" % base64.b64encode(bytes(200000)).decode(), note.replace(rows.ORIGIN, "rows example", 1),
                      note.replace(rows.ORIGIN, "rows+example", 1), note.replace(rows.ORIGIN, "rows\x85example", 1), note[:-1], note.partition("— ")[0]):
            with self.subTest(wrong[:80]), self.assertRaises(notes.Refused):
                notes.Note(wrong)

    def test_time_0_is_no_cosignature(self):
        with open(os.path.join(os.path.dirname(CASES), "good.json"), "rb") as file:
            case = json.load(file)
        key = notes.parse_key(case["policy"].split("\n")[1].split()[2])
        _, _, note = notes.parse_proof(case["bundle"]["log_proof"])
        signature = next(data for name, key_id, data in note.lines if key_id == key.id)
        text = note.text.encode()
        self.assertTrue(key.verify(text, signature))
        with unittest.mock.patch.object(notes.signatures, "ed25519_verify", return_value=True):
            self.assertFalse(key.verify(text, bytes(8) + signature[8:]))

    def test_signatures_in_der(self):
        of = lambda r, s: b"\x30" + bytes([4 + len(r) + len(s)]) + b"\x02" + bytes([len(r)]) + r + b"\x02" + bytes([len(s)]) + s
        self.assertEqual(notes.der_signature(of(b"\x01", b"\x02")), b"\x00" * 31 + b"\x01" + b"\x00" * 31 + b"\x02")
        good = of(b"\x01", b"\x02")
        for wrong in (b"", good[:-1], good + b"\x00", b"\x31" + good[1:], b"\x30\x02\x02\x00", of(b"\x01" * 40, b"\x02")):
            self.assertIsNone(notes.der_signature(wrong))

    def test_whatever_is_in_it_gets_a_verdict(self):
        with open(os.path.join(os.path.dirname(CASES), "good.json"), "rb") as file:
            case = json.load(file)
        policy = notes.Policy(case["policy"])
        for name in case["bundle"]:
            for value in (None, 0, "", "x", [], {}, {"party": 7, "input": {}, "salt": ""}, True):
                bundle = copy.deepcopy(case["bundle"])
                bundle[name] = value
                self.assertFalse(verify.verify_bundle(bundle, case["pubkeys"], policy).valid(), (name, value))


if __name__ == "__main__":
    unittest.main()
