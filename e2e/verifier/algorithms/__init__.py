"""The algorithms in exact fractions, one module each, written only from the published description.

A module has:
    ID, PARTIES         its id, and its least and most parties
    result(labels, params, inputs, beacon)
                        the certificate's `result`, or None if a party rejected. Raises ValueError for inputs that
                        no deal accepts. Only an algorithm with a beacon uses the parameter beacon.
    redraw(labels, shown)
                        only an algorithm with a beacon: the result from the beacon and the digest in the shown result
    ACCEPTED            only if a party can reject the deal: the input of a party that did not
    rejectors(inputs)   only if a party can reject the deal: the parties that did, ascending
"""

import importlib
import pkgutil
import re


def member(container, name, kind):
    if type(container) is not dict or type(container.get(name)) is not kind:
        raise ValueError("`%s` is missing or of the wrong type" % name)
    return container[name]


def natural(value, what):
    if type(value) is not int or value < 0:
        raise ValueError("%s is not a non-negative integer" % what)
    return value


def check_labels(labels, parties):
    """Raises ValueError unless a deal with this least and most number of parties takes the labels."""
    if not parties[0] <= len(labels) <= parties[1]:
        raise ValueError("%d labels for %d to %d parties" % (len(labels), *parties))
    for label in labels:
        if not label or len(label.encode()) > 200 or re.search("[\\x00-\\x1f\\x7f-\\x9f]", label):
            raise ValueError("the label %.40r is empty, has over 200 bytes or a control character" % label)


KNOWN = {}  # the modules by id; each file in this folder is one
for _file in pkgutil.iter_modules(__path__):
    _module = importlib.import_module("%s.%s" % (__name__, _file.name))
    KNOWN[_module.ID] = _module


def draws(algorithm):
    """Reports whether the results of the algorithm are drawn with a beacon."""
    return hasattr(KNOWN[algorithm], "redraw")


def rejected(algorithm, sealed):
    """Reports whether this input of a party rejects the deal."""
    try:
        return bool(KNOWN[algorithm].rejectors([sealed]))
    except (KeyError, AttributeError, TypeError, ValueError):
        return False  # no such algorithm or rejection, or an input that no deal accepts


def rejects(algorithm):
    """Reports whether a party can reject a deal of the algorithm."""
    return hasattr(KNOWN[algorithm], "rejectors")
