"""Prints every case of test_verifier.py as a JSON array, for verifiers that must agree with this one.

Each case is {certificate, tree_head, keys, inputs, params, failed}: what was verified and the names of the
failed checks. keys is an array of labels or a document with the keys. If that document is neither a
key set nor a status, failed is ["unreadable"] alone. inputs and params are null if the case has none.
"""

import json
import sys
import unittest

import toys

CASES = []
decide = toys.failed


def recorded(certificate, head, keys=toys.KEYS, inputs=None, params=None):
    names = decide(certificate, head, keys, inputs=inputs, params=params)
    # Copy the arguments now, because a test may change them later.
    CASES.append(json.dumps({"certificate": certificate, "tree_head": head, "keys": keys, "inputs": inputs,
                             "params": params, "failed": sorted(names)}))
    return names


toys.failed = recorded
import test_verifier  # noqa: E402  (the module imports `failed` from toys, so the line above comes first)

suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case)
                           for case in (test_verifier.Certificates, test_verifier.KeySets, test_verifier.Inputs))
outcome = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(suite)
print("[" + ",\n".join(CASES) + "]")
sys.exit(0 if outcome.wasSuccessful() else 1)
