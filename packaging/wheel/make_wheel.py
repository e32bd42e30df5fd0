#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the wheel with the command; scripts/wheel.sh calls it.

    make_wheel.py --build BUILD --share SHARE --output FOLDER [--license FILE]... [--sbom FILE]...

BUILD has the command, wideep, and the compiled modules, wheel/*.so (packaging/wheel); both are
stripped here. SHARE goes to share/ of the environment (manual pages, completions). Name, version,
dependencies and entry points are pyproject.toml's.

The wheel's tag is py3-none-manylinux_2_27_x86_64: the command is for any Python, and a module's
name says which Python it is for. That tag is a promise, so each program is looked at: its symbols'
versions, and the libraries that it needs.

The same input gives the same bytes: files are sorted, and their time is $SOURCE_DATE_EPOCH.
"""

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
GLIBC = (2, 27)
TAG = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
# Of PEP 600's list of libraries that every machine has, those that a portable build uses.
LIBRARIES = {
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
}
MODULES = ("_balancer", "_communicator", "_expert_maps", "_online_repairer", "_tensor_communicator")
SUFFIXES = [f".cpython-{each}-x86_64-linux-gnu.so" for each in ("39", "310", "311")] + [".abi3.so"]
MAX_BYTES = 40_000_000


def fail(message: str) -> None:
    sys.exit(f"make_wheel.py: {message}")


def stripped(program: Path, folder: Path) -> bytes:
    """Its content without symbols, once it is known to run wherever the tag says."""
    if not program.is_file():
        fail(f"{program} is missing: scripts/wheel.sh builds it")
    facts = subprocess.run(
        ["objdump", "-p", program], check=True, capture_output=True, text=True
    ).stdout
    needed = set(re.findall(r"^ +NEEDED +(\S+)$", facts, re.M))
    if needed - LIBRARIES:
        fail(f"{program} needs {sorted(needed - LIBRARIES)}, which not every machine has")
    versions = {tuple(map(int, each.split("."))) for each in re.findall(r"GLIBC_([0-9.]+)", facts)}
    if versions and max(versions) > GLIBC:
        fail(f"{program} needs glibc {'.'.join(map(str, max(versions)))}, more than {TAG} promises")
    path = folder / program.name
    subprocess.run(["strip", "--strip-all", "--remove-section=.comment", "-o", path, program], check=True)
    return path.read_bytes()


def metadata_of(project: dict, version: str, licenses: list[Path]) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']['text']}",
        *(f"License-File: {each.name}" for each in licenses),
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {each}" for each in project["dependencies"]),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (SOURCE / project["readme"]).read_text()


def entry_points(project: dict) -> str:
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in sorted(entries.items()))
        for group, entries in sorted(project.get("entry-points", {}).items())
    )


def content(options: argparse.Namespace, project: dict, version: str) -> dict[str, bytes]:
    """Every file of the wheel but RECORD, by its path in it."""
    info = f"wideep-{version}.dist-info"
    data = f"wideep-{version}.data"
    files = {
        f"wideep/{each.relative_to(SOURCE / 'python/wideep')}": each.read_bytes()
        for each in (SOURCE / "python/wideep").rglob("*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    with tempfile.TemporaryDirectory() as folder:
        for name in (module + suffix for module in MODULES for suffix in SUFFIXES):
            files[f"wideep/{name}"] = stripped(options.build / "wheel" / name, Path(folder))
        files[f"{data}/scripts/wideep"] = stripped(options.build / "wideep", Path(folder))
    for each in options.share.rglob("*"):
        if each.is_file():
            files[f"{data}/data/share/{each.relative_to(options.share)}"] = each.read_bytes()
    for each in options.license:
        files[f"{info}/licenses/{each.name}"] = each.read_bytes()
    for each in options.sbom:
        files[f"{info}/sboms/{each.name}"] = each.read_bytes()
    files[f"{info}/METADATA"] = metadata_of(project, version, options.license).encode()
    files[f"{info}/entry_points.txt"] = entry_points(project).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: wideep\nRoot-Is-Purelib: false\nTag: {TAG}\n"
    ).encode()
    return files


def record(files: dict[str, bytes], path: str) -> bytes:
    lines = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{path},,\n"]).encode()


def write(path: Path, files: dict[str, bytes]) -> None:
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    when = time.gmtime(max(seconds, 315532800))[:6]  # a .zip knows no time before 1980
    # RECORD is last, as the format recommends.
    names = sorted(files, key=lambda name: (".dist-info/" in name, name.endswith("/RECORD"), name))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name, when)
            entry.create_system = 3  # Unix, whose permissions follow
            is_program = ".data/scripts/" in name or name.endswith(".so")
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--share", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--license", type=Path, action="append", default=[])
    parser.add_argument("--sbom", type=Path, action="append", default=[])
    options = parser.parse_args()
    if not os.environ.get("SOURCE_DATE_EPOCH", "").isdigit():
        fail("SOURCE_DATE_EPOCH is not set: expected seconds since 1970, which scripts/wheel.sh sets")

    settings = tomllib.loads((SOURCE / "pyproject.toml").read_text())
    rule = settings["tool"]["scikit-build"]["metadata"]["version"]
    version = re.search(rule["regex"], (SOURCE / rule["input"]).read_text())["value"]
    files = content(options, settings["project"], version)
    path = f"wideep-{version}.dist-info/RECORD"
    files[path] = record(files, path)
    options.output.mkdir(parents=True, exist_ok=True)
    wheel = options.output / f"wideep-{version}-{TAG}.whl"
    write(wheel, files)
    size = wheel.stat().st_size
    if size > MAX_BYTES:
        fail(f"{wheel} has {size / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:.0f}")
    print(f"{wheel} {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
