#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes random expressions of Jinja's filters and tests, Python's methods and operators, with
arguments of right and wrong types, and what jinja2 makes of them.

    random_expressions.py SEED COUNT FILE    for chat_test with WIDEEP_CHAT_GOLDEN=FILE

Needs jinja2.
"""

import copy
import json
import random
import re
import resource
import signal
import sys

from make_golden import make_environment

NAMES = {
    "text": "Hello, <b>wide</b>  World!", "word": "straße", "blank": " \t\n", "empty": "",
    "lines": "one\n two\r\n\nthree\x0bfour\x1cfive\x85six\u2028seven\r", "digits": "42",
    "odd": "a\u00ad\u200b\ue000\x07é😀'q\"\\\x7f\u3000\U000e0001", "greek": "ΑΣ ΟΔΟΣ ǆabc ﬁn İx",
    "prose": "Look, goof-ball -- use the -b option! re-a e-mail-a-b a--b 1-2-3 --x-- http://a.b/c-d?e=f&g=<h> x_y-z",
    "html": "<p>a &amp; <!-- no > -->b</p>  &#65;&#x20ac;&lt; <i c &#128; d",
    "tabs": "a\tbc\n\td\r\t\té", "name_1": "_é1", "real": " -2.50e1 ", "format": "%s and %d", "n": 7, "minus": -3, "zero": 0, "x": 2.5,
    "half": -0.5, "big": 1e20, "tiny": 1.5e-7, "huge": 18446744073709551615,
    "deep": -123456789012345678901234567890, "yes": True, "no": False, "none": None,
    "list": [3, 1, 2], "mixed": [1, "a", None, [2, 3], {"k": 1}], "names": ["b", "A", "c", "a", "B"],
    "nothing": [], "dict": {"b": 1, "A": [2], "a": "x", "items": 5}, "hollow": {},
    "people": [{"name": "Ann", "age": 30, "of": {"town": "Bern"}}, {"name": "bob", "age": 25},
               {"name": "Cid", "age": 30, "of": {"town": "Arth"}}],
    "pairs": [["k", 1], ["l", 2]],
}

VALUES = list(NAMES) + [
    "missing", "('b', 1)", "('a',)", "()", "'a'", "'ab'", "', '", "'\\n'", "'%'", "1", "-1", "0", "2",
    "3", "1.5", "'3'", "'0x1f'", "'1_000'", "[1, 2]", "['x', 'y']", "{'k': 'v'}", "(range(4) | list)",
    "dict.items()", "dict.keys()", "dict.values()", "people[0]", "dict(a=1)",
    "range(3)", "range(5, 0, -2)", "{1: 'a', none: [2], true: 3}", "{2.5: 1, (1, 'a'): 2, 'k': {0: 1}}",
    "(text | safe)", "('a&b' | safe)", "[text | safe, '<']", "tabs",
    "'name'", "'age'", "'of.town'", "'0'", "'upper'", "'odd'", "5", "10", "999999", "1e12", "'key'", "'value'", "'ceil'", "16",
]

SLICED = [name for name in NAMES if name != "none"]  # Jinja slices constants by other rules

# What chat templates use; the rest of Jinja is refused by name.
FILTERS = ["capitalize", "count", "d", "default", "dictsort", "first", "indent", "int", "items", "join",
           "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace",
           "reverse", "safe", "select", "selectattr", "sort", "string", "title", "tojson", "trim", "unique",
           "upper"]
TESTS = ["boolean", "defined", "divisibleby", "eq", "equalto", "even", "false", "float", "ge",
         "greaterthan", "gt", "in", "integer", "iterable", "le", "lessthan", "lt", "mapping", "ne", "none",
         "number", "odd", "sameas", "sequence", "string", "true", "undefined"]

# These give generators, whose printed form is an address.
LAZY = {"items", "map", "reject", "rejectattr", "select", "selectattr", "unique", "reverse"}

NAMED = {
    "replace": ["old", "new", "count"], "tojson": ["indent", "ensure_ascii", "separators", "sort_keys"],
    "indent": ["width", "first", "blank"], "int": ["default"],
    "sort": ["reverse", "case_sensitive", "attribute"],
    "dictsort": ["case_sensitive", "by", "reverse"], "join": ["d", "attribute"], "trim": ["chars"],
    "default": ["default_value", "boolean"], "map": ["attribute", "default"], "max": ["attribute"],
    "unique": ["case_sensitive", "attribute"],
}

METHODS = [
    "capitalize", "count", "endswith", "find", "format", "isdigit", "join", "lower", "lstrip",
    "removeprefix", "removesuffix", "replace", "rfind", "rsplit", "rstrip", "split", "splitlines",
    "startswith", "strip", "title", "upper", "get", "items", "keys", "values", "copy", "nosuch",
    "append", "pop", "update", "clear", "sort", "reverse", "start", "step"]

OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in",
             "not in", "and", "or"]

# Make more elements than a template may here.
SLOW = re.compile(r"\* 999999|999999 \*")
# The operators of sets, which views of a dict have in Python.
VIEWS = re.compile(r"[-<>]=? dict\.(keys|items)\(|dict\.(keys|items)\(\) [-<>]"
                   r"|(sort|min|max)\(.*dict\.(keys|items)")
# Whether two methods are equal depends on whether Python keeps one object for a text.
EQUAL_METHODS = re.compile(r"unique\(.*'upper'")
UNCOMPARED = re.compile(
    r"generator object|<function|<built-in|<bound|object at 0x|<class|<method"  # addresses
)


class Maker:
    """Makes expressions from one source of random numbers."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self):
        return self.random.choice(VALUES)

    def arguments(self, named=()):
        given = [self.value() for _ in range(self.random.choice([0, 0, 0, 1, 1, 1, 2, 3]))]
        if named and self.random.random() < 0.4:
            given = given[:1] if self.random.random() < 0.3 else []
            given.append(f"{self.random.choice(named)}={self.value()}")
        return f"({', '.join(given)})"

    def filtered(self, input_value):
        name = self.random.choice(FILTERS)
        arguments = self.arguments(NAMED.get(name, ()))
        if name in ("select", "reject", "selectattr", "rejectattr") and self.random.random() < 0.7:
            test = repr(self.random.choice(TESTS))
            attribute = [repr(self.random.choice(["name", "age", "of.town", "0"]))] if "attr" in name else []
            arguments = f"({', '.join(attribute + [test, self.value()][:self.random.choice([1, 2])])})"
        if name == "map" and self.random.random() < 0.6:
            arguments = f"({self.random.choice(FILTERS)!r})"
        text = f"{input_value} | {name}{'' if arguments == '()' else arguments}"
        return f"{text} | list" if name in LAZY else text

    def expression(self):
        kind = self.random.random()
        value = self.value()
        if kind < 0.45:
            return self.filtered(value)
        if kind < 0.6:
            return f"{value} is {self.random.choice(['', 'not '])}{self.random.choice(TESTS)}{self.arguments()}"
        if kind < 0.85:
            return f"({value}).{self.random.choice(METHODS)}{self.arguments()}"
        if kind < 0.95:
            return f"{value} {self.random.choice(OPERATORS)} {self.value()}"
        return f"{value}[{self.value()}]" if kind < 0.98 else f"{self.random.choice(SLICED)}[{self.value()}:{self.value()}]"

    def template(self):
        text = self.expression()
        if self.random.random() < 0.2:
            text = self.filtered(f"({text})")
        return "{{ " + text + " }}"


class TooSlow(BaseException):
    """The expression takes longer than a second."""


def too_slow(*_):
    raise TooSlow


def expected(environment, template):
    """Whether the expression can be compared, and the text, or None where Jinja fails."""
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        text = environment.from_string(template).render(**copy.deepcopy(NAMES))
    except (TooSlow, MemoryError):
        return False, None
    except Exception:  # pylint: disable=broad-except
        return True, None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return not UNCOMPARED.search(text) and len(text) < 100_000, text


def main():
    seed, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    # An expression may ask for any amount of memory or time.
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    signal.signal(signal.SIGALRM, too_slow)
    maker = Maker(seed)
    environment = make_environment()
    cases = []
    while len(cases) < count:
        template = maker.template()
        if any(each.search(template) for each in (SLOW, VIEWS, EQUAL_METHODS)):
            continue
        compared, text = expected(environment, template)
        if compared:
            cases.append({"name": template, "template": template, "names": NAMES, "expected": text})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cases, file)


if __name__ == "__main__":
    main()
