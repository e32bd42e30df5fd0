#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random regular expressions and the formats of JSON Schema, with texts that Python's `re` and the
jsonschema package find matching or not, for src/text/grammar/pattern_cases_test.cc; and the judge of
texts that wideep's grammars have made of them.

    python3 make_patterns.py make SEED COUNT CASES.json     # needs jsonschema[format]
    python3 make_patterns.py judge SAMPLES.json             # exits with 1 if a text does not match

Texts have no line feed: in Python "$" is true before one at the end. No digits and letters beyond
ASCII either: they are in \\d and \\w in Python only. tests/golden/schemas/patterns.json:
make 1 90, with jsonschema 4.26.0, rfc3339-validator 0.1.4 and fqdn 1.6.0.
"""

import json
import random
import re
import sys

import jsonschema

CHARACTERS = ["a", "b", "c", "1", "2", "_", "-", " ", "\t", "\u00a0", "\u2028", "\ufeff", ".", "A"]
ATOMS = ["a", "b", "c", "1", "-", "\\.", ".", "[ab]", "[^b]", "[a-c1]", "\\d", "\\w", "\\s", "\\S",
         "\\D", "\\W", "[\\s\\S]", "[^\\s]", "[^\\S]", "[\\w-]", "[^\\w]", "[^\\d\\s]", "\\x41",
         "[\\sa]", "(?:)"]
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{0,3}", "{2,}", "{1,2}?", "*?"]
DECIMALS = [
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
    r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,3}|(?=[\d.]{1,6}0*$)\d{0,3}\.\d{0,2}0*$)",
    r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,4}|(?=[\d.]{1,5}0*$)\d*\.\d*0*$)",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d{0,2}0*$",
    r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{2,6}$",
    r"^(?!a$|b$)[abc]+$",
]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "hostname", "email"]


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def pattern(self, depth):
        kind = self.rng.randrange(5) if depth > 0 else 0
        if kind <= 1:
            return self.rng.choice(ATOMS) + self.rng.choice(REPEATS)
        if kind == 2:
            return "(" + self.pattern(depth - 1) + ")" + self.rng.choice(REPEATS)
        if kind == 3:
            return "(?:" + self.pattern(depth - 1) + "|" + self.pattern(depth - 1) + ")"
        return self.pattern(depth - 1) + self.pattern(depth - 1)

    def whole(self):
        pattern = self.pattern(3)
        if self.rng.random() < 0.3:
            look = self.pattern(2) + self.rng.choice(["", "$"])
            pattern = self.rng.choice(["(?=", "(?!"]) + look + ")" + pattern
        if self.rng.random() < 0.5:
            pattern = "^" + pattern
        return pattern + "$" if self.rng.random() < 0.5 else pattern

    def text(self, most):
        return "".join(self.rng.choice(CHARACTERS) for _ in range(self.rng.randrange(most)))

    def near(self, texts):
        """A text with a character changed."""
        text = self.rng.choice(texts)
        at = self.rng.randrange(len(text) + 1)
        return text[:at] + self.rng.choice(CHARACTERS + [""]) + text[at + self.rng.randrange(2):]


def parts_of(pattern, texts):
    whole = [text for text in texts if re.fullmatch(pattern, text)]
    found = [text for text in texts if re.search(pattern, text)]
    return {"pattern": pattern, "texts": texts, "whole": whole, "found": found}


def pattern_cases(rng, count):
    maker = Maker(rng)
    numbers = ["", "1", "-1.5", "+", "-.", "12.34", "123.456", "00.10", "1.2.3", "+0", ".", ".5",
               "1234", "12345.6", "aB1", "ABC1", "ab1", "a", "b", "ab", "c", "A1"]
    cases = [parts_of(pattern, numbers) for pattern in DECIMALS]
    while len(cases) < count:
        pattern = maker.whole()
        try:
            re.compile(pattern)
        except re.error:
            continue
        texts = sorted({maker.text(7) for _ in range(60)})
        matching = [text for text in texts if re.search(pattern, text)] or texts
        texts = sorted(set(texts) | {maker.near(matching) for _ in range(20)})
        case = parts_of(pattern, rng.sample(texts, min(len(texts), 20)))
        if case["found"]:
            cases.append(case)
    return cases


def checker():
    found = jsonschema.Draft202012Validator.FORMAT_CHECKER
    missing = [each for each in FORMATS if each not in found.checkers]
    if missing:
        sys.exit(f"jsonschema cannot check {missing}: pip install rfc3339-validator fqdn")
    return found


def format_texts(rng, name):
    digits = lambda n: "".join(rng.choice("0123456789") for _ in range(n))
    label = lambda n: "".join(rng.choice("abcXYZ019-") for _ in range(n))
    host = lambda: ".".join(label(rng.choice([1, 2, 5, 14, 30, 60])) for _ in range(rng.randrange(1, 4)))
    date = lambda: f"{rng.randrange(1, 9999):04}-{rng.randrange(0, 14):02}-{rng.randrange(0, 33):02}"
    leap = lambda: f"{rng.choice([4, 1900, 2000, 2023, 2024, 2100, 2400, 9996, 100, 400]):04}-02-29"
    time = lambda: (f"{rng.randrange(25):02}:{rng.randrange(61):02}:{rng.randrange(61):02}"
                    + rng.choice(["", "." + digits(rng.randrange(1, 12))])
                    + rng.choice(["Z", "+13:00", "-12:45", "+14:00", "+23:59", "+24:00", "", "z"]))
    byte = lambda: str(rng.choice([0, 1, 9, 10, 99, 100, 199, 249, 255, 256, 300, "01"]))
    makers = {
        "date": lambda: rng.choice([date, leap])(),
        "time": time,
        "date-time": lambda: rng.choice([date, leap])() + rng.choice(["T", "T", " "]) + time(),
        "uuid": lambda: "-".join("".join(rng.choice("0123456789abcdefABCDEFg"[: rng.choice([16, 22, 23])])
                                         for _ in range(n)) for n in (8, 4, 4, 4, 12)),
        "ipv4": lambda: ".".join(byte() for _ in range(rng.choice([4, 4, 4, 3]))),
        "hostname": host,
        "email": lambda: rng.choice(["a_b", "a.b", "x+y", "o'n", "A!", ".a", "a..b", "1"]) + "@" + host(),
    }
    return sorted({makers[name]() for _ in range(60)})


# What the standards say and jsonschema does not look at: the part before the @ of an address. T and
# Z are taken as capitals only, which every reader knows.
def is_valid(check, name, text):
    if not check.conforms(text, name) or (name in ("time", "date-time") and text != text.upper()):
        return False
    if name != "email":
        return True
    local, _, host = text.rpartition("@")
    atom = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
    return (re.fullmatch(rf"{atom}(\.{atom})*", local) is not None and len(local) <= 64
            and check.conforms(host, "hostname"))


def format_cases(rng):
    check = checker()
    cases = []
    for name in FORMATS:
        texts = format_texts(rng, name)
        valid = [text for text in texts if is_valid(check, name, text)]
        cases.append({"format": name, "valid": valid,
                      "invalid": [text for text in texts if text not in valid]})
    return cases


def make(seed, count, path):
    rng = random.Random(seed)
    lines = lambda cases: ",\n".join(json.dumps(each) for each in cases)
    with open(path, "w", encoding="utf-8") as out:
        out.write('{"patterns": [\n' + lines(pattern_cases(rng, count)) + "\n],\n")
        out.write('"formats": [\n' + lines(format_cases(rng)) + "\n]}\n")


def judge(path):
    with open(path, encoding="utf-8") as file:
        samples = json.load(file)
    wrong = 0
    count = 0
    for each in samples["patterns"]:
        for text in each["texts"]:
            count += 1
            match = re.fullmatch if each["is_whole"] else re.search
            if not match(each["pattern"], text):
                print(f"{each['pattern']!r} does not match {text!r}")
                wrong += 1
    check = checker()
    for each in samples["formats"]:
        for text in each["texts"]:
            count += 1
            if not is_valid(check, each["format"], text):
                print(f"{text!r} is no {each['format']}")
                wrong += 1
    print(f"{count} texts, {wrong} wrong")
    return 1 if wrong or count == 0 else 0


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(judge(sys.argv[2]))
