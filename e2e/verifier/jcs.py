"""Canonical JSON (RFC 8785) for values whose only numbers are integers.

parse() is strict: it refuses text with more than one reading (RFC 7493) and every number that is not an
integer within ±(2^53-1). encode() writes the one canonical form of what parse() returns.
"""

import json

MAX_INTEGER = 2**53 - 1


class Refused(ValueError):
    """Raised for bytes that are not JSON with integers only. The text says what is wrong."""


def parse(data, max_depth=32):
    """Returns the value of UTF-8 bytes, or raises Refused. max_depth is the most levels of objects and arrays."""
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_not_an_integer,
            parse_constant=_not_an_integer,
        )
    except UnicodeDecodeError as e:
        raise Refused("not UTF-8 at byte %d" % e.start) from None
    except json.JSONDecodeError as e:
        raise Refused("not JSON: %s at character %d" % (e.msg, e.pos)) from None
    except RecursionError:
        raise Refused("nested too deep") from None
    _check(value, max_depth)
    return value


def encode(value):
    """Returns the RFC 8785 bytes of None, bool, int, str, list and dict."""
    return _text(value).encode("utf-8")


def _object(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Refused("the same member name occurs twice in one object")
    return members


def _integer(token):
    # The length is tested first: int() of a very long token is slow or refused by Python itself.
    if len(token) > 17 or not token.isascii() or abs(int(token)) > MAX_INTEGER:
        raise Refused("an integer is beyond ±(2^53-1)")
    return int(token)


def _not_an_integer(token):
    raise Refused("the number %.40s is not an integer" % token)


def _check(value, depth):
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise Refused("a string holds a lone surrogate") from None
    elif isinstance(value, (dict, list)):
        if depth == 0:
            raise Refused("nested too deep")
        for member in value:
            _check(member, depth - 1)
            if isinstance(value, dict):
                _check(value[member], depth - 1)


# RFC 8785 3.2.2.2: five short escapes, \u00xx in lower case for other controls, all else as it is.
_ESCAPES = {code: "\\u%04x" % code for code in range(0x20)}
_ESCAPES.update({8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 0x22: '\\"', 0x5C: "\\\\"})


def _text(value):
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if type(value) is int and abs(value) <= MAX_INTEGER:
        return str(value)
    if type(value) is str:
        return '"' + value.translate(_ESCAPES) + '"'
    if type(value) is list:
        return "[" + ",".join(_text(v) for v in value) + "]"
    if type(value) is dict:
        # RFC 8785 3.2.3: by UTF-16 code units, which is the byte order of UTF-16BE.
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(_text(n) + ":" + _text(value[n]) for n in names) + "}"
    raise TypeError("no canonical form for %s" % type(value).__name__)
