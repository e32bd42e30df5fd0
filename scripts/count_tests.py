#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the tests of runs by scripts/test.sh, and names those that failed or were skipped.

A GoogleTest program is one test for ctest, or several shards; each writes <test>.xml into the
directory of the run's results, from which its tests are counted one by one. The other tests are
counted from ctest's own ctest.xml.

    python3 scripts/count_tests.py <directory of results>...
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


class Test:
    """One test: its name, its seconds, and the messages of its failure or why it was skipped."""

    def __init__(self, name, seconds, failure=None, skip_reason=None):
        self.name = name
        self.seconds = seconds
        self.failure = failure
        self.skip_reason = skip_reason


def first_line(text):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0] if lines else ""


def read_googletest(path):
    """The tests that one program, or shard, has run."""
    program = path.stem.split(".")[0]
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "notrun":
            continue
        failure, skipped = case.find("failure"), case.find("skipped")
        yield Test(
            f"{program}.{case.get('classname')}.{case.get('name')}",
            float(case.get("time")),
            None if failure is None else first_line(failure.get("message")),
            None if skipped is None else first_line(skipped.get("message").split("\n", 1)[-1]),
        )


def read_ctest(path, counted):
    """The tests of ctest but for those in `counted`, which have files of their own."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        if name in counted:
            continue
        output = case.findtext("system-out")
        yield Test(
            name,
            float(case.get("time")),
            "see above" if status == "fail" else None,
            first_line(output).removeprefix("skipped: ") if status in ("notrun", "disabled") else None,
        )


def read_tests(directory):
    """All tests of a run."""
    files = [path for path in sorted(directory.glob("*.xml")) if path.name != "ctest.xml"]
    tests = [test for path in files for test in read_googletest(path)]
    return tests + list(read_ctest(directory / "ctest.xml", {path.stem for path in files}))


def main():
    if len(sys.argv) < 2:
        print(__doc__.splitlines()[-1].strip(), file=sys.stderr)
        return 2
    tests = [test for argument in sys.argv[1:] for test in read_tests(pathlib.Path(argument))]
    failed = [test for test in tests if test.failure is not None]
    skipped = [test for test in tests if test.skip_reason is not None]
    for test in skipped:
        print(f"skipped: {test.name}: {test.skip_reason}")
    for test in failed:
        print(f"failed: {test.name}: {test.failure}")
    passed = len(tests) - len(failed) - len(skipped)
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
