#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random JSON schemas of the subset that docs/serve.md states, with values that the jsonschema package
finds valid or invalid, for AgreesWithJsonschema of src/text/grammar/json_schema_test.cc; and the judge of
texts that wideep's grammars have made of them.

    python3 make_schemas.py make SEED COUNT CASES.json
    python3 make_schemas.py judge SAMPLES.json          # exits with 1 if a text is not valid

Members of valid values are in the order of the schema, and texts are written without exponents, as
the subset says. tests/golden/schemas/cases.json: make 1 60.
"""

import json
import random
import sys

import jsonschema

NAMES = ["a", "ab", "name", "size", "x/y", "é", "q\"q"]
# No line feed: in Python "$" is true before one at the end.
WORDS = ["", "a", "ab", "abc", "hello", "é", "€uro", "\"", "\\", "\t", "12", "a b"]


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def schema(self, depth):
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const"]
        if depth > 0:
            kinds += ["object", "object", "map", "array", "array", "tuple", "anyOf", "types"]
        return getattr(self, "of_" + self.rng.choice(kinds))(depth)

    def of_string(self, _):
        rng = self.rng
        schema = {"type": "string"}
        kind = rng.randrange(4)
        if kind == 0:
            schema["minLength"] = rng.randrange(4)
            schema["maxLength"] = schema["minLength"] + rng.randrange(100)
        elif kind == 1:
            schema["pattern"] = rng.choice(["^a", "b$", "^[a-c]{1,3}$", "1", "^(a|b)*$", "^[^a-c]+$"])
        return schema

    def bounds(self, schema, number):
        rng = self.rng
        low = number()
        if rng.random() < 0.4:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.4:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + abs(number())
        return schema

    def of_integer(self, _):
        if self.rng.random() < 0.2:
            return {"type": "integer", "multipleOf": self.rng.choice([1, 2, 7, 25])}
        return self.bounds({"type": "integer"}, lambda: self.rng.randrange(-200, 200))

    def of_number(self, _):
        return self.bounds({"type": "number"}, lambda: self.rng.randrange(-2000, 2000) / 8)

    def of_boolean(self, _):
        return {"type": "boolean"}

    def of_null(self, _):
        return {"type": "null"}

    def of_enum(self, _):
        return {"enum": self.rng.sample(["a", "b", 1, -2.5, None, True, [1], {"a": 1}, "é\n"], 3)}

    def of_const(self, _):
        return {"const": self.rng.choice(["x", 3, False, {"k": [None]}])}

    def of_object(self, depth):
        rng = self.rng
        names = rng.sample(NAMES, rng.randrange(1, 5))
        schema = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names},
                  "required": [n for n in names if rng.random() < 0.5]}
        kind = rng.randrange(3)
        if kind == 0:
            schema["additionalProperties"] = False
        elif kind == 1:
            schema["additionalProperties"] = self.schema(depth - 1)
        return schema

    def of_map(self, depth):
        rng = self.rng
        schema = {"type": "object", "additionalProperties": self.schema(depth - 1)}
        if rng.random() < 0.5:
            schema["minProperties"] = rng.randrange(2)
            schema["maxProperties"] = schema["minProperties"] + rng.randrange(3)
        if rng.random() < 0.3:
            schema["propertyNames"] = {"pattern": "^[a-e]+$"}
        return schema

    def of_array(self, depth):
        rng = self.rng
        schema = {"type": "array", "items": self.schema(depth - 1)}
        if rng.random() < 0.5:
            schema["minItems"] = rng.randrange(3)
            schema["maxItems"] = schema["minItems"] + rng.randrange(3)
        return schema

    def of_tuple(self, depth):
        rng = self.rng
        return {"type": "array", "prefixItems": [self.schema(depth - 1) for _ in range(2)],
                "items": rng.choice([False, {"type": "integer"}]), "minItems": rng.randrange(3)}

    def of_anyOf(self, depth):
        return {"anyOf": [self.schema(depth - 1) for _ in range(2)]}

    def of_types(self, _):
        return {"type": self.rng.sample(["string", "integer", "null", "boolean"], 2)}

    # A value that is likely to be valid.
    def value(self, schema):
        rng = self.rng
        if schema is False:
            return None
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(rng.choice(schema["anyOf"]))
        kind = schema["type"]
        if isinstance(kind, list):
            kind = rng.choice(kind)
        if kind == "string":
            return rng.choice(WORDS) + rng.choice(WORDS)
        if kind in ("integer", "number"):
            low = schema.get("minimum", schema.get("exclusiveMinimum", -50))
            high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100))
            step = schema.get("multipleOf", 1 if kind == "integer" else 0.125)
            steps = max(1, int((high - low) / step) + 2)
            number = (int(low / step) + rng.randrange(-1, steps)) * step
            return int(number) if number == int(number) else number
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "null":
            return None
        if kind == "array":
            first = schema.get("prefixItems", [])
            least = schema.get("minItems", 0)
            length = rng.randrange(least, least + 3)
            return [self.value(first[i] if i < len(first) else schema["items"])
                    for i in range(length)]
        value = {}
        for name, each in schema.get("properties", {}).items():
            if name in schema.get("required", []) or rng.random() < 0.6:
                value[name] = self.value(each)
        more = schema.get("additionalProperties", False)
        for _ in range(rng.randrange(3) if more is not False else 0):
            name = "".join(rng.choice("abcdefxyz") for _ in range(3))
            if name not in value:
                value[name] = self.value(more)
        return value

    # A value that is likely to be wrong somewhere.
    def spoiled(self, value):
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.7:
            name = rng.choice(list(value))
            kind = rng.randrange(3)
            if kind == 0:
                return {k: v for k, v in value.items() if k != name}
            if kind == 1:
                return {**value, "zz": 1}
            return {k: self.spoiled(v) if k == name else v for k, v in value.items()}
        if isinstance(value, list) and value and rng.random() < 0.7:
            place = rng.randrange(len(value))
            if rng.random() < 0.3:
                return value + value
            return [self.spoiled(v) if i == place else v for i, v in enumerate(value)]
        if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.7:
            return value + rng.choice([-300, -1, 1, 300])
        if isinstance(value, str) and rng.random() < 0.7:
            return value + rng.choice(WORDS)
        return rng.choice([None, 0, "zzz", [], {}, True, 1.5])


# What jsonschema allows and the subset leaves out: members that `properties` does not name, where
# additionalProperties is not there.
def with_closed_objects(schema):
    if isinstance(schema, dict):
        closed = {k: with_closed_objects(v) for k, v in schema.items()}
        if "properties" in schema and "additionalProperties" not in schema:
            closed["additionalProperties"] = False
        return closed
    if isinstance(schema, list):
        return [with_closed_objects(each) for each in schema]
    return schema


def is_valid(schema, value):
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def make(seed, count, path):
    rng = random.Random(seed)
    maker = Maker(rng)
    cases = []
    for _ in range(count):
        schema = maker.schema(3)
        strict = with_closed_objects(schema)
        valid, invalid = set(), set()
        for _ in range(30):
            value = maker.value(schema)
            if rng.random() < 0.5:
                value = maker.spoiled(value)
            separators = rng.choice([(",", ":"), (", ", ": ")])
            text = json.dumps(value, ensure_ascii=False, separators=separators)
            if not is_valid(schema, value):
                invalid.add(text)
            elif is_valid(strict, value):
                valid.add(text)
        cases.append({"schema": schema, "valid": sorted(valid)[:8], "invalid": sorted(invalid)[:8]})
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")


def judge(path):
    with open(path, encoding="utf-8") as file:
        samples = json.load(file)
    texts = wrong = 0
    for each in samples:
        for text in each["texts"]:
            texts += 1
            try:
                if is_valid(each["schema"], json.loads(text)):
                    continue
                why = "not valid"
            except ValueError as error:
                why = str(error)
            wrong += 1
            print(f"{json.dumps(each['schema'])}\n  {text!r}: {why}")
    print(f"{texts} texts of {len(samples)} schemas, {wrong} wrong")
    return wrong == 0 and texts > len(samples)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    elif not judge(sys.argv[2]):
        sys.exit(1)
