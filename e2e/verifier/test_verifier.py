import contextlib
import copy
import http.server
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from urllib.parse import parse_qs, urlsplit

from toys import (COMPUTED, ED_KEY, H, INPUTS, KEY, KEYS, OLD_KEY, PARAMS, STATUS, VOID, ToyKey, commitment, failed,
                  issue, jcs, key_set, payload, signed_head, tree, verify)

HERE = os.path.dirname(os.path.abspath(__file__))


NEXT_KEY = ToyKey(0x77777777)

# All committed, nobody revealed.
UNREVEALED = dict(VOID, parties=COMPUTED["parties"], void_flakers=[0, 1],
                  timing=dict(VOID["timing"], commits_closed_at=2))


def places(value, where=()):
    """Yields the path of every member and element inside value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield where + (key,)
        if isinstance(value[key], (dict, list)):
            yield from places(value[key], where + (key,))


def parent(value, where):
    for key in where[:-1]:
        value = value[key]
    return value


def other(value):
    """Returns another value, of the same type if there is one."""
    if value is None:
        return 7
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value[:-1] + ("1" if value[-1] == "0" else "0")
    return {"other": 1} if isinstance(value, dict) else value + ["x"]


class Certificates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certificate, cls.head = issue(COMPUTED)

    def test_accepted(self):
        self.assertEqual(failed(self.certificate, self.head), set())
        self.assertEqual(failed(*issue(VOID)), set())
        self.assertEqual(failed(*issue(UNREVEALED)), set())
        self.assertEqual(failed(*issue(COMPUTED, index=0, size=1)), set())

    def test_retired_keys(self):
        for key in (OLD_KEY, ED_KEY):
            certificate, head = issue(COMPUTED, key=key)
            self.assertEqual(failed(certificate, head), set())
            self.assertEqual(failed(certificate, head, [KEY.public]), {"signature", "key_in_force"})

    def test_every_changed_place(self):
        for original, head in ((self.certificate, self.head), issue(VOID)):
            for where in places(original):
                changed = copy.deepcopy(original)
                holder = parent(changed, where)
                holder[where[-1]] = other(holder[where[-1]])
                with self.subTest(changed=where):
                    bad = failed(changed, head)
                    self.assertTrue(bad)
                    if where[0] not in ("log_proof", "signature"):
                        self.assertLessEqual({"signature"}, bad)
                del holder[where[-1]]
                with self.subTest(removed=where):
                    self.assertTrue(failed(changed, head))

    def test_every_changed_place_of_the_tree_head(self):
        for name in self.head:
            bad = failed(self.certificate, dict(self.head, **{name: other(self.head[name])}))
            self.assertIn("tree_head_signature", bad)

    def test_added_members(self):
        self.assertEqual(failed(dict(self.certificate, note="x"), self.head)
                         & {"shape", "signature"}, {"shape", "signature"})
        inner = [w for w in places(self.certificate) if isinstance(parent(self.certificate, w)[w[-1]], dict)]
        for where in [()] + inner:
            changed = copy.deepcopy(self.certificate)
            parent(changed, where + (0,))["added"] = 1
            with self.subTest(where=where):
                self.assertTrue(failed(changed, self.head))
        self.assertEqual(failed(self.certificate, dict(self.head, note="x")),
                         {"tree_head_signature", "key_in_force", "tree_size", "merkle_inclusion"})

    def test_signature_forms(self):
        message = payload(self.certificate)
        high = KEY.sign(message, high=True)
        self.assertEqual(failed(dict(self.certificate, signature=high), self.head), {"signature", "key_in_force"})
        for form in (self.certificate["signature"].upper(), "es256:" + self.certificate["signature"][6:].upper(),
                     self.certificate["signature"][6:], "", None, 1, self.certificate["signature"] + "00"):
            self.assertIn("signature", failed(dict(self.certificate, signature=form), self.head))
        message = jcs.encode({k: self.head[k] for k in ("tree_size", "root_hash")})
        head = dict(self.head, signature=KEY.sign(message, high=True))
        self.assertEqual(failed(self.certificate, head), {"tree_head_signature", "key_in_force"})
        self.assertEqual(failed(self.certificate, self.head, [OLD_KEY.public]),
                         {"signature", "tree_head_signature", "key_in_force"})
        self.assertEqual(failed(self.certificate, self.head, KEYS + ["es256:00"]), {"keys"})
        self.assertEqual(failed(self.certificate, self.head, []),
                         {"keys", "signature", "tree_head_signature", "key_in_force"})

    def test_paths(self):
        proof = self.certificate["log_proof"]
        good = proof["inclusion_path"]
        self.assertGreater(len(good), 2)
        swapped = [good[1], good[0]] + good[2:]
        for bad in (swapped, good[:-1], good[1:], good + good[:1], good[:1] + good, []):
            changed = dict(self.certificate, log_proof=dict(proof, inclusion_path=bad))
            self.assertEqual(failed(changed, self.head), {"merkle_inclusion"})
        upper = dict(self.certificate, log_proof=dict(proof, inclusion_path=[good[0].upper()] + good[1:]))
        self.assertIn("shape", failed(upper, self.head))

    def test_proof_of_another_leaf(self):
        twin, head = issue(dict(COMPUTED, cert_id="c_2"))
        self.assertEqual(failed(dict(self.certificate, log_proof=twin["log_proof"]), head), {"merkle_inclusion"})

    def test_another_head(self):
        longer, head = issue(COMPUTED, size=22)
        self.assertEqual(failed(self.certificate, head), {"tree_size", "merkle_inclusion"})
        self.assertEqual(failed(self.certificate, signed_head(21, H(b""))), {"merkle_inclusion"})
        forged = signed_head(21, bytes.fromhex(self.head["root_hash"]), ToyKey(99))
        self.assertEqual(failed(self.certificate, forged), {"tree_head_signature", "key_in_force"})

    def test_upper_case_hashes(self):
        changed = dict(COMPUTED, input_root="sha256:" + COMPUTED["input_root"][7:].upper())
        self.assertEqual(failed(*issue(changed)), {"input_root_wellformed"})
        first, second = COMPUTED["parties"]
        parties = [dict(first, commitment="sha256:" + first["commitment"][7:].upper()), second]
        self.assertIn("shape", failed(*issue(dict(COMPUTED, parties=parties))))
        head = dict(self.head, root_hash=self.head["root_hash"].upper())
        self.assertIn("tree_head_signature", failed(self.certificate, head))

    def test_signed_but_contradictory(self):
        flipped = [dict(p, index=1 - p["index"]) for p in COMPUTED["parties"]]
        timing, void_timing = COMPUTED["timing"], VOID["timing"]
        for base, change in [
            (COMPUTED, {"void_flakers": []}), (COMPUTED, {"void_flakers": [0]}), (COMPUTED, {"result": None}),
            (COMPUTED, {"result": None, "void_flakers": [0]}), (COMPUTED, {"timing": dict(timing, computed_at=None)}),
            (COMPUTED, {"timing": dict(timing, commits_closed_at=None)}), (COMPUTED, {"parties": flipped}),
            (COMPUTED, {"timing": dict(timing, reveals_closed_at=None)}), (COMPUTED, {"parties": flipped[:1]}),
            (COMPUTED, {"retention": "standard"}), (COMPUTED, {"properties": ["logged", "logged"]}),
            (COMPUTED, {"properties": ["beacon-verified"]}), (VOID, {"void_flakers": []}),
            (VOID, {"void_flakers": [2]}),
            (VOID, {"void_flakers": [1, 1]}), (VOID, {"void_flakers": [1, 0]}), (VOID, {"void_flakers": [0, 1]}),
            (VOID, {"void_flakers": None}), (VOID, {"result": {}}),
            (VOID, {"timing": dict(void_timing, computed_at=9)}),
            (VOID, {"input_root": COMPUTED["input_root"]}), (VOID, {"result": {}, "void_flakers": None}),
            (VOID, {"input_root": COMPUTED["input_root"], "algorithm": "shapley.v1",
                    "timing": dict(void_timing, reveals_closed_at=3)}),
            (UNREVEALED, {"void_flakers": []}), (UNREVEALED, {"void_flakers": [1, 0]}),
            (UNREVEALED, {"void_flakers": [1, 1]}), (UNREVEALED, {"void_flakers": [1, 2]}),
            (COMPUTED, {"parties": [dict(flipped[0], index=i) for i in range(17)]}),
            (COMPUTED, {"outcome": "VOID", "result": None, "void_flakers": [0],
                        "timing": dict(timing, computed_at=None)}),
        ]:
            with self.subTest(change=change):
                self.assertEqual(failed(*issue(dict(base, **change))), {"consistency"})
        self.assertEqual(failed(*issue(dict(COMPUTED, input_root=None, timing=dict(timing, reveals_closed_at=None)))),
                         {"input_root_wellformed"})

    def test_shapes_of_other_types(self):
        boolean = dict(COMPUTED, timing=dict(COMPUTED["timing"], created_at=True))
        self.assertIn("shape", failed(*issue(boolean)))
        for rubbish in (None, [], 1, "x", {}):
            self.assertIn("shape", failed(rubbish, self.head))
            self.assertIn("tree_head_signature", failed(self.certificate, rubbish))
            for name in self.certificate:
                failed(dict(self.certificate, **{name: rubbish}), self.head)  # returns a verdict on any value


class KeySets(unittest.TestCase):
    """Which leaves a key may sign: leaf 11 of 21, signed by OLD_KEY, under a head by KEY or by OLD_KEY."""

    @staticmethod
    def retired(**more):
        return key_set((KEY, "current"), (NEXT_KEY, "next"), (OLD_KEY, "retired", more), (ED_KEY, "retired"))

    def test_current_and_next_always(self):
        for key in (KEY, NEXT_KEY):
            for head_key in (KEY, NEXT_KEY):
                self.assertEqual(failed(*issue(COMPUTED, key=key, head_key=head_key), self.retired()), set())

    def test_a_retired_key(self):
        old = issue(COMPUTED, key=OLD_KEY)
        self.assertEqual(failed(*old, self.retired()), set())
        self.assertEqual(failed(*old, self.retired(retired_at=1795257295)), set())
        self.assertEqual(failed(*issue(COMPUTED, key=ED_KEY), self.retired()), set())
        for size, bad in ((0, True), (1, True), (10, True), (11, True), (12, False), (21, False), (2**53 - 1, False)):
            with self.subTest(size=size):
                closed = self.retired(retired_at=1795257295, tree_size=size)
                self.assertEqual(failed(*old, closed), {"key_in_force"} if bad else set())
        # The rule holds for leaf 0 too.
        self.assertEqual(failed(*issue(COMPUTED, 0, 1, OLD_KEY), self.retired(tree_size=0)), {"key_in_force"})
        self.assertEqual(failed(*issue(COMPUTED, 0, 1, OLD_KEY), self.retired(tree_size=1)), set())

    def test_a_head_of_a_retired_key(self):
        for key in (KEY, OLD_KEY):
            old = issue(COMPUTED, key=key, head_key=OLD_KEY)
            self.assertEqual(failed(*old, self.retired()), set())
            for size, bad in ((0, True), (20, True), (21, False), (22, False)):
                with self.subTest(key=key, size=size):
                    self.assertEqual(failed(*old, self.retired(tree_size=size)), {"key_in_force"} if bad else set())

    def test_a_status_tells_no_states(self):
        status = dict(STATUS, pubkey=NEXT_KEY.public, legacy_pubkeys=[OLD_KEY.public, KEY.public])
        self.assertEqual(failed(*issue(COMPUTED, key=OLD_KEY), status), set())
        self.assertEqual(failed(*issue(COMPUTED, key=OLD_KEY, head_key=OLD_KEY), status), set())
        self.assertEqual(failed(*issue(COMPUTED), dict(status, legacy_pubkeys=[])),
                         {"signature", "tree_head_signature", "key_in_force"})

    def test_a_stranger(self):
        self.assertEqual(failed(*issue(COMPUTED, key=ToyKey(99)), self.retired()), {"signature", "key_in_force"})
        self.assertEqual(failed(*issue(COMPUTED, head_key=ToyKey(99)), self.retired()),
                         {"tree_head_signature", "key_in_force"})
        no_key = key_set((KEY, "current"))
        no_key["keys"].append({"pubkey": "es256:00", "state": "retired"})
        self.assertEqual(failed(*issue(COMPUTED), no_key), {"keys"})

    def test_keys_of_nobody(self):
        # In order: the encodings of the eight points of small order; two of these points again, with the wrong sign bit
        # for x = 0; values of y that are not below 2^255-19; and a value of y that no point has.
        # Under the first key, the signature with R = the key's point and S = 0 fits every message.
        eighth = ("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc%02x",
                  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03%02x")
        usual = "%02x" + "ff" * 30 + "%02x"
        bad = (["01" + "00" * 31, usual % (0xec, 0x7f), "00" * 32, "00" * 31 + "80"] +
               [y % sign for y, signs in zip(eighth, ((0x05, 0x85), (0x7a, 0xfa))) for sign in signs] +
               ["01" + "00" * 30 + "80", usual % (0xec, 0xff)] +
               [usual % (low, high) for low in (0xed, 0xee, 0xf0, 0xff) for high in (0x7f, 0xff)] + ["02" + "00" * 31])
        certificate, head = issue(COMPUTED)
        forged = "ed25519:01" + "00" * 63
        for raw in bad:
            with self.subTest(key=raw):
                key = "ed25519:" + raw
                self.assertEqual(failed(dict(certificate, signature=forged), dict(head, signature=forged), [key]),
                                 {"keys", "signature", "tree_head_signature", "key_in_force"})
                listed = key_set((KEY, "current"))
                listed["keys"].append({"pubkey": key, "state": "retired"})
                self.assertEqual(failed(certificate, head, listed), {"keys"})

    def test_how_many(self):
        issued = issue(COMPUTED)
        for more, want in ((999, {"keys"}), (1000, {"unreadable"})):
            labels = ["%d" % i for i in range(more)]  # distinct labels that are not keys
            document = key_set((KEY, "current"))
            document["keys"] += [{"pubkey": label, "state": "retired"} for label in labels]
            self.assertEqual(failed(*issued, document), want)
            self.assertEqual(failed(*issued, dict(STATUS, legacy_pubkeys=labels)), want)

    def test_documents(self):
        issued, good, only = issue(COMPUTED), self.retired(retired_at=0, tree_size=21), key_set((KEY, "current"))
        self.assertEqual(failed(*issued, good), set())
        self.assertEqual(failed(*issued, only), set())
        row, old = only["keys"][0], {"pubkey": OLD_KEY.public, "state": "retired"}
        for bad in (None, "x", 1, {}, {"keys": None}, {"keys": []}, {"keys": {}}, {"keys": [KEY.public]},
                    {"keys": [row, row]}, {"keys": [row, dict(row, state="retired")]}, {"keys": [dict(row, state="next")]},
                    {"keys": [old]}, {"keys": [row, {"pubkey": OLD_KEY.public, "state": "current"}]},
                    {"keys": [dict(row, state="Current")]}, {"keys": [dict(row, tree_size=1)]},
                    {"keys": [dict(row, retired_at=1)]}, {"keys": [row, dict(old, state="next", tree_size=5)]},
                    {"keys": [row, dict(old, tree_size=-1)]}, {"keys": [row, dict(old, tree_size="1")]},
                    {"keys": [row, dict(old, tree_size=None)]}, {"keys": [row, dict(old, tree_size=True)]},
                    {"keys": [row, dict(old, retired_at=-1)]}, {"keys": [row, dict(old, retired_at=None)]},
                    {"keys": [row, dict(old, revoked=True)]}, dict(only, more=1), {"keys": [dict(row, pubkey="")]},
                    {"keys": [{"state": "current"}]}, {"keys": [{"pubkey": KEY.public}]}, dict(STATUS, keys=[]),
                    {"pubkey": KEY.public}, dict(STATUS, pubkey=None), dict(STATUS, legacy_pubkeys=None),
                    dict(STATUS, legacy_pubkeys=[1])):
            with self.subTest(document=bad):
                self.assertEqual(failed(*issued, bad), {"unreadable"})


class Inputs(unittest.TestCase):
    def setUp(self):
        self.issued = issue(COMPUTED)

    def test_accepted(self):
        self.assertEqual(failed(*self.issued, inputs=INPUTS, params=PARAMS), set())
        names = [c["name"] for c in verify.verify(*self.issued, KEYS, INPUTS, PARAMS).checks]
        self.assertEqual(names[-3:], ["commitments", "input_root", "result"])

    def test_decoded_salt(self):
        sealed = INPUTS[1]["input"]
        data = [jcs.encode(INPUTS[0]["input"]) + INPUTS[0]["salt"].encode(), jcs.encode(sealed) + b"\x00\xff"]
        parties = [COMPUTED["parties"][0], dict(COMPUTED["parties"][1], commitment="sha256:" + H(data[1]).hex())]
        issued = issue(dict(COMPUTED, parties=parties, input_root="sha256:" + tree(data).hex()))
        self.assertEqual(failed(*issued, inputs=INPUTS, params=PARAMS), set())

    def test_wrong(self):
        swapped_root = "sha256:" + tree([jcs.encode(s["input"]) + s["salt"].encode() for s in INPUTS[::-1]]).hex()
        self.assertEqual(failed(*issue(dict(COMPUTED, input_root=swapped_root)), inputs=INPUTS), {"input_root"})
        salted = [INPUTS[0], dict(INPUTS[1], salt="00fe")]
        for inputs in (salted, INPUTS[::-1], [INPUTS[0], {"input": INPUTS[1]["input"]}], INPUTS[:1], [1, 2], {},
                       [INPUTS[0], dict(INPUTS[1], salt=5)]):
            bad = failed(*self.issued, inputs=inputs, params=PARAMS)
            self.assertEqual(bad, {"commitments"})
        self.assertEqual(failed(*self.issued, inputs=[INPUTS[0], None], params=PARAMS), set())

    def test_wrong_result(self):
        for params in ({"items": PARAMS["items"][::-1]}, {"items": PARAMS["items"][:4]}, {}, {"items": [1]}):
            self.assertEqual(failed(*self.issued, inputs=INPUTS, params=params), {"result"})
        changed = copy.deepcopy(COMPUTED)
        changed["result"]["shares"][0]["value_ppb"] += 1
        self.assertEqual(failed(*issue(changed), inputs=INPUTS, params=PARAMS), {"result"})

    def test_limits(self):
        """Nobody values anything, so all parties get equal shares. A deal has at most 1,000 items, and 4,096 items times parties."""
        for n, count, bad in ((2, 1000, set()), (2, 1001, {"result"}), (16, 256, set()), (16, 257, {"result"})):
            items = ["i%d" % i for i in range(count)]
            inputs = [{"input": {"valuations": {}}, "salt": str(i)} for i in range(n)]
            shares = [{"party": i, "label": "p%d" % i, "items": [{"item": item, "share": "1/%d" % n} for item in items], "value_ppb": 0} for i in range(n)]
            parties = [{"index": i, "label": "p%d" % i, "commitment": commitment(s), "attested_by": "initiator"} for i, s in enumerate(inputs)]
            issued = issue(dict(COMPUTED, parties=parties, result={"method": "adjusted_winner" if n == 2 else "proportional", "shares": shares},
                                input_root="sha256:" + tree([jcs.encode(s["input"]) + s["salt"].encode() for s in inputs]).hex()))
            self.assertEqual(failed(*issued, inputs=inputs, params={"items": items}), bad)

    def test_void(self):
        self.assertEqual(failed(*issue(VOID), inputs=[INPUTS[0], None], params=PARAMS), set())
        answers = [{"input": {"accept": True}, "salt": "a"}, {"input": {"accept": False}, "salt": "b"}]
        parties = [dict(p, commitment=commitment(s)) for p, s in zip(COMPUTED["parties"], answers)]
        root = "sha256:" + tree([jcs.encode(s["input"]) + s["salt"].encode() for s in answers]).hex()
        rejected = dict(COMPUTED, outcome="VOID", algorithm="shapley.v1", parties=parties, result=None, input_root=root,
                        timing=dict(COMPUTED["timing"], computed_at=None), void_flakers=[1])
        params = {"coalition_values": {}}
        self.assertEqual(failed(*issue(rejected), inputs=answers, params=params), set())
        self.assertEqual(failed(*issue(dict(rejected, void_flakers=[0])), inputs=answers, params=params), {"result"})


class CommandLine(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.certificate, self.head = issue(COMPUTED)
        self.offline = ["--certificate", self.file("cert.json", self.certificate),
                        "--tree-head", self.file("head.json", self.head), "--status", self.file("status.json", STATUS)]

    def file(self, name, value):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(value if isinstance(value, bytes) else json.dumps(value).encode())
        return path

    def run_verifier(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = verify.main(list(arguments))
            except SystemExit as usage:
                code = usage.code
        return code, out.getvalue(), err.getvalue()

    def test_offline(self):
        # With -S there are no site-packages, only the standard library.
        program = [sys.executable, "-S", "-E", os.path.join(HERE, "verify.py")]
        done = subprocess.run(program + self.offline, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
        code, out, err = done.returncode, done.stdout, done.stderr
        self.assertEqual((code, err), (4, ""))
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["OK"] * 9 + ["certificate", "parties", "result"] + ["not"] * 4 + ["party"] * 2 + ["not"] * 3 + ["CONSISTENT,"])
        self.assertIn("development key", out)  # the status declares it

    def test_inputs_and_json(self):
        code, out, _ = self.run_verifier(*self.offline, "--json", "--inputs", self.file("in.json", INPUTS),
                                         "--params", self.file("params.json", PARAMS))
        report = json.loads(out)
        self.assertEqual((code, report["valid"], len(report["checks"])), (4, True, 12))
        self.assertEqual([c["claim"] for c in report["claims"] if c["status"] == "proven"], ["result"])
        code, out, _ = self.run_verifier(*self.offline, "--json", "--pubkey", OLD_KEY.public)
        self.assertEqual((code, json.loads(out)["valid"]), (1, False))

    def test_pubkeys(self):
        arguments = self.offline[:4]
        self.assertEqual(self.run_verifier(*arguments, "--pubkey", OLD_KEY.public, "--pubkey", KEY.public)[0], 0)
        self.assertEqual(self.run_verifier(*arguments, "--pubkey", OLD_KEY.public)[0], 1)
        self.assertEqual(self.run_verifier(*arguments)[0], 2)

    def test_keys(self):
        certificate, head = issue(COMPUTED, key=OLD_KEY)
        arguments = ["--certificate", self.file("old.json", certificate), "--tree-head", self.file("old-head.json", head)]
        for size, code in ((12, 0), (11, 1)):
            keys = self.file("keys.json", key_set((KEY, "current"), (OLD_KEY, "retired", {"tree_size": size})))
            self.assertEqual(self.run_verifier(*arguments, "--keys", keys)[0], code)
        _, out, _ = self.run_verifier(*arguments, "--keys", keys)
        self.assertIn("retired at tree size 11, so it must not sign leaf 11", out)
        status = self.file("status.json", STATUS)
        self.assertEqual(self.run_verifier(*arguments, "--keys", status)[0], 0)  # an older key than the development key signed
        self.assertEqual(self.run_verifier(*arguments, "--keys", keys, "--status", status)[0], 2)

    def test_a_failed_check(self):
        changed = self.file("changed.json", dict(self.certificate, deal_id="x\nOK   signature \x1b[2J"))
        code, out, _ = self.run_verifier("--certificate", changed, *self.offline[2:])
        self.assertEqual(code, 1)
        self.assertRegex(out, "(?m)^FAIL signature ")
        named = self.file("named.json", dict(self.certificate, **{"\nOK   shape \x1b[2J": 1}))
        code, out, _ = self.run_verifier("--certificate", named, *self.offline[2:])
        self.assertEqual((code, "\x1b" in out, "\nOK   shape" in out), (1, False, False))

    def test_unreadable(self):
        text = json.dumps(self.certificate)
        for bad in (text.replace('"created_at": 1', '"created_at": 1.0'),
                    text.replace('"created_at": 1', '"created_at": 1e0'),
                    text.replace('"mode"', '"mode": "sealed", "mode"'), text[:-1], text.replace("Donald", "\\ud800")):
            self.assertNotEqual(bad, text)
            code, out, err = self.run_verifier("--certificate", self.file("bad.json", bad.encode()), *self.offline[2:])
            self.assertEqual((code, out), (2, ""))
            self.assertIn("bad.json", err)
        for arguments in (["--certificate", os.path.join(self.folder, "none")] + self.offline[2:], [], self.offline[:2],
                          self.offline + ["--params", self.offline[1]], self.offline[:2] + ["--base-url", "file:///"],
                          self.offline + ["--inputs", self.file("null.json", None)],
                          self.offline[:4] + ["--status", self.offline[1]]):
            self.assertEqual(self.run_verifier(*arguments)[0], 2)

    def serve(self, newest, older, keys=key_set((KEY, "current"))):
        """Starts a server of /v1/status, /v1/log/tree-head and /v1/pubkeys. older: heads by size."""
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                url = urlsplit(self.path)
                size = parse_qs(url.query).get("tree_size")
                head = older.get(int(size[0])) if size else newest
                answer = {"/v1/status": STATUS, "/v1/pubkeys": keys, "/v1/log/tree-head": head}.get(url.path)
                self.send_response(200 if answer else 404)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return "http://127.0.0.1:%d/" % server.server_port

    def test_online(self):
        newer = signed_head(30, H(b"newer"))
        for newest, older, want in ((self.head, {}, 4), (newer, {21: self.head}, 4),
                                    (newer, {}, 1), (newer, {21: newer}, 1)):
            base = self.serve(newest, older)
            self.assertEqual(self.run_verifier(*self.offline[:2], "--base-url", base)[0], want)
        self.assertEqual(self.run_verifier(*self.offline[:2], "--base-url", base + "nothing")[0], 2)
        old = ["--certificate", self.file("old.json", issue(COMPUTED, key=OLD_KEY)[0])]
        head = issue(COMPUTED, key=OLD_KEY)[1]
        for size, want in ((12, 0), (11, 1)):
            base = self.serve(head, {}, key_set((KEY, "current"), (OLD_KEY, "retired", {"tree_size": size})))
            self.assertEqual(self.run_verifier(*old, "--base-url", base)[0], want)


if __name__ == "__main__":
    unittest.main()
