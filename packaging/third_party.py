#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what a package has of others: their notices, and a bill of materials.

    third_party.py --output FOLDER [--sysroot SYSROOT | --program FILE...] [--wheel-python FOLDER]

    FOLDER/THIRD_PARTY.txt     name, version and licence of each, and its copyright file; the texts
                               of the licences that these refer to
    FOLDER/wideep.spdx.json    the same as SPDX 2.3, and the libraries that each FILE is linked with

Nobody keeps a list of what is in: it is asked of the build. With --sysroot (the portable build) it
is every package that scripts/portable_sysroot.sh took a header or an archive of. Without, it is the
headers and the page that are compiled in everywhere, and the shared libraries that FILEs need, which
the bill has and the notices have not: they come from the distribution. packaging/dependencies.json
knows the licences; what it lacks is an error. Versions are those of this machine's packages, from
dpkg; --wheel-python adds nanobind and robin-map (scripts/wheel_python.sh).

The same input gives the same bytes; the time in the bill is $SOURCE_DATE_EPOCH.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
TABLE = json.loads((SOURCE / "packaging/dependencies.json").read_text())
COMMON_LICENSES = Path("/usr/share/common-licenses")


def fail(message: str) -> None:
    sys.exit(f"third_party.py: {message}")


@dataclass
class Dependency:
    name: str
    version: str
    license: str
    purl: str
    notice: str
    supplier: str
    is_shared: bool = False
    of_the_page: bool = False


def output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        fail(f"{command[0]} is missing: what a package has of others is found out on Debian only")
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(command)}: {error.stderr.strip()}")
    return done.stdout


def packages_of(paths: list[Path]) -> set[str]:
    """Debian's packages that have these files; a path may lead through links."""
    names = {}
    for path in paths:
        resolved = str(path.resolve())
        # What was moved from /lib to /usr/lib has either name.
        names[path] = [resolved, resolved.removeprefix("/usr")]
    # Of a name that is of no package it says so, and goes on with the next.
    known = subprocess.run(
        ["dpkg-query", "--search", *(name for each in names.values() for name in each)],
        capture_output=True,
        text=True,
    )
    package_of = {}
    for line in known.stdout.splitlines():
        packages, _, name = line.partition(": ")
        package_of[name] = packages.split(", ")[0]
    found = set()
    for path, each in names.items():
        packages = [package_of[name] for name in each if name in package_of]
        if not packages:
            fail(f"{path} is of no package: its licence is not known")
        found.add(packages[0])
    return found


def of_package(package: str, is_shared: bool = False) -> tuple[str, Dependency]:
    """Debian's source of a package, and what is known of it."""
    form = "${source:Package}\t${source:Upstream-Version}\t${source:Version}\t${Architecture}"
    source, upstream, version, architecture = output_of(
        "dpkg-query", "--show", f"--showformat={form}", package
    ).split("\t")
    key = re.sub(r"^gcc-\d+$", "gcc", source)
    if key not in TABLE:
        fail(f"packaging/dependencies.json has no '{key}', Debian's source of {package}")
    notice = Path("/usr/share/doc", package.split(":")[0], "copyright")
    if not notice.is_file():
        fail(f"{notice} is missing: the notice of {TABLE[key]['name']}")
    return key, Dependency(
        name=TABLE[key]["name"],
        version=re.sub(r"\+(ds|dfsg).*", "", upstream),  # Debian left something out
        license=TABLE[key]["license"],
        purl=f"pkg:deb/debian/{source}@{version.replace('+', '%2B')}?arch=source",
        notice=notice.read_text(),
        supplier="Organization: Debian",
        is_shared=is_shared,
        of_the_page=TABLE[key].get("of_the_page", False),
    )


def libraries_of(program: Path) -> list[Path]:
    """The shared libraries that a program names, as this machine has them."""
    cache = dict(re.findall(r"^\s+(\S+) \(.*x86-64.*\) => (\S+)$", output_of("/sbin/ldconfig", "-p"), re.M))
    needed = re.findall(r"^ +NEEDED +(\S+)$", output_of("objdump", "-p", str(program)), re.M)
    own = {"libwideep.so.0"}
    missing = [each for each in needed if each not in cache and each not in own]
    if missing:
        fail(f"{program} needs {missing}, which ldconfig does not know")
    return [Path(cache[each]) for each in needed if each not in own]


def of_sysroot(sysroot: Path) -> set[str]:
    """Packages of the headers and archives in a folder of scripts/portable_sysroot.sh."""
    prefix = sysroot / "dependencies"
    links = [*prefix.glob("lib/*.a"), *prefix.glob("include/*"), *prefix.glob("include/*-linux-gnu/*")]
    links = [each for each in links if each.is_symlink()]
    if not links:
        fail(f"{sysroot} has no headers and archives: scripts/portable_sysroot.sh makes it")
    return packages_of(links)


def glibc_of_sysroot(sysroot: Path) -> Dependency:
    """Of Ubuntu's glibc a few start files and stubs are linked in, and no more."""
    # Downloads of other versions stay there; this is what was unpacked.
    files = (sysroot / "files").read_text().splitlines()
    (archive,) = (Path(each) for each in files if Path(each).name.startswith("libc6-dev_"))
    version = archive.name.split("_")[1]
    return Dependency(
        name=TABLE["glibc"]["name"] + " (start files)",
        version=version.split("-")[0],
        license=TABLE["glibc"]["license"],
        purl=f"pkg:deb/ubuntu/glibc@{version}?arch=source",
        notice=(sysroot / "root/usr/share/doc/libc6-dev/copyright").read_text(),
        supplier="Organization: Ubuntu",
    )


def of_wheel_python(folder: Path) -> list[Dependency]:
    (info,) = folder.glob("nanobind-*.dist-info")
    version = info.name.removeprefix("nanobind-").removesuffix(".dist-info")
    robin = folder / "nanobind/ext/robin_map"
    robin_version = re.findall(
        r"define TSL_RH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)",
        (robin / "include/tsl/robin_growth_policy.h").read_text(),
    )
    licenses = [*info.glob("licenses/LICENSE*"), *info.glob("LICENSE*")]
    robin_notice = (robin / "include/tsl/robin_map.h").read_text().split("#ifndef")[0]
    if not licenses or "Permission is hereby granted" not in robin_notice:
        fail(f"{folder}: the licences of nanobind and robin-map are not where they were")
    return [
        Dependency("nanobind", version, "BSD-3-Clause", f"pkg:pypi/nanobind@{version}",
                   licenses[0].read_text(), "NOASSERTION"),
        Dependency("robin-map", ".".join(robin_version) or "NOASSERTION", "MIT",
                   "pkg:github/Tessil/robin-map" + ("@v" + ".".join(robin_version) if robin_version else ""),
                   robin_notice, "NOASSERTION"),
    ]  # fmt: skip


def dependencies_of(options: argparse.Namespace) -> list[Dependency]:
    compiled_in = packages_of(
        [Path(each["compiled_in"]) for each in TABLE.values() if "compiled_in" in each]
    )
    found: dict[str, Dependency] = {}
    if options.sysroot:
        compiled_in |= of_sysroot(options.sysroot)
        compiled_in |= packages_of([Path("/usr/lib/gcc/x86_64-linux-gnu/12/libstdc++.a")])
        found["glibc"] = glibc_of_sysroot(options.sysroot)
    found.update(of_package(package) for package in sorted(compiled_in))
    if not options.sysroot:
        libraries = [library for each in options.program for library in libraries_of(each)]
        for package in sorted(packages_of(libraries)):
            key, dependency = of_package(package, is_shared=True)
            found.setdefault(key, dependency)
    if options.wheel_python:
        found.update((each.name, each) for each in of_wheel_python(options.wheel_python))
    return sorted(found.values(), key=lambda each: each.name.lower())


def notices(dependencies: list[Dependency]) -> str:
    line = "=" * 78
    parts = [
        "wideep is under the Apache License 2.0 (LICENSE). This package also has parts of the\n"
        "following, each under the terms below.\n"
    ]
    referred = set()
    for each in dependencies:
        if each.is_shared:
            continue
        where = "\nIn the chat page." if each.of_the_page else ""
        parts.append(f"{line}\n{each.name} {each.version}\n{each.license}{where}\n{line}\n{each.notice.strip()}\n")
        referred.update(
            COMMON_LICENSES / name
            for name in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", each.notice)
        )
    missing = [str(each) for each in referred if not each.is_file()]
    if missing:
        fail(f"{missing} are missing, to which notices refer")
    for text in sorted({each.resolve() for each in referred}):  # GPL is the newest of them
        parts.append(f"{line}\n{text}, to which the above refers\n{line}\n{text.read_text().rstrip()}\n")
    return "\n".join(parts)


def bill(dependencies: list[Dependency], version: str, seconds: int) -> str:
    def package(identifier: str, **fields: object) -> dict:
        return {
            "SPDXID": identifier,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "copyrightText": "NOASSERTION",
            **fields,
        }

    root = "SPDXRef-wideep"
    packages = [
        package(root, name="wideep", versionInfo=version, licenseConcluded="Apache-2.0",
                licenseDeclared="Apache-2.0", supplier="Organization: the wideep authors",
                copyrightText="2026 the wideep authors", primaryPackagePurpose="APPLICATION")
    ]  # fmt: skip
    relationships = [
        {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": root}
    ]
    for each in dependencies:
        identifier = "SPDXRef-" + re.sub(r"[^A-Za-z0-9]+", "-", each.name).strip("-")
        packages.append(
            package(identifier, name=each.name, versionInfo=each.version, licenseConcluded=each.license,
                    licenseDeclared=each.license, supplier=each.supplier,
                    primaryPackagePurpose="LIBRARY",
                    externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                   "referenceLocator": each.purl}])
        )  # fmt: skip
        kind = "CONTAINS" if each.of_the_page else "DYNAMIC_LINK" if each.is_shared else "STATIC_LINK"
        relationships.append(
            {"spdxElementId": root, "relationshipType": kind, "relatedSpdxElement": identifier}
        )
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"wideep-{version}",
        "creationInfo": {
            "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: wideep-third_party.py"],
        },
        "packages": packages,
        "relationships": relationships,
    }
    # A name of its own for each content.
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    name = uuid.uuid5(uuid.NAMESPACE_OID, digest)
    document["documentNamespace"] = f"https://spdx.org/spdxdocs/wideep-{version}-{name}"
    return json.dumps(document, indent=2) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--program", type=Path, action="append", default=[])
    parser.add_argument("--sysroot", type=Path)
    parser.add_argument("--wheel-python", type=Path)
    options = parser.parse_args()
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not seconds.isdigit():
        fail(f"SOURCE_DATE_EPOCH='{seconds}': expected seconds since 1970, which scripts/packages.sh sets")
    if bool(options.sysroot) == bool(options.program):
        fail("expected --sysroot, of a build with everything in it, or --program, of any other")
    for each in options.program:
        if not each.is_file():
            fail(f"{each} is no file")
    TABLE.pop("about")
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", (SOURCE / "CMakeLists.txt").read_text())[1]
    output_of("dpkg-query", "--version")  # or says what is missing
    dependencies = dependencies_of(options)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "THIRD_PARTY.txt").write_text(notices(dependencies))
    (options.output / "wideep.spdx.json").write_text(bill(dependencies, version, int(seconds)))


if __name__ == "__main__":
    main()
