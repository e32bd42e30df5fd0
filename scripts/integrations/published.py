# SPDX-License-Identifier: Apache-2.0
"""Modules of a published package, without the package: a few of its files, and empty modules around
them. They stay on this machine; none of them is part of wideep."""

import ast
import importlib.machinery
import pathlib
import sys
import tarfile
import types
import zipfile


def extract(package, patterns, directory):
    """The files of a .whl or .tar.gz whose paths match one of the patterns, below the directory."""
    directory = pathlib.Path(directory)
    if str(package).endswith(".whl"):
        archive = zipfile.ZipFile(package)
        names = {name: name for name in archive.namelist()}
        read = archive.read
    else:
        archive = tarfile.open(package)
        names = {m.name.partition("/")[2]: m for m in archive.getmembers() if m.isfile()}

        def read(member):
            return archive.extractfile(member).read()

    found = [name for name in names if any(pathlib.PurePath(name).match(p) for p in patterns)]
    missing = [p for p in patterns if not any(pathlib.PurePath(n).match(p) for n in found)]
    if missing:
        raise SystemExit(f"{package}: no file {', '.join(missing)}: the package has changed")
    for name in found:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(read(names[name]))
    return directory


def empty_packages(root, *names):
    """Packages with these dotted names whose __init__ does not run; their files are below root."""
    for name in names:
        module = types.ModuleType(name)
        module.__path__ = [str(pathlib.Path(root, *name.split(".")))]
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        _add(name, module)


def module(name, **contents):
    """A module of these contents."""
    made = types.ModuleType(name)
    vars(made).update(contents)
    return _add(name, made)


def part_of_module(name, path, wanted, **globals_of_it):
    """A module that has only these functions and assignments of the file; what they use is given."""
    tree = ast.parse(pathlib.Path(path).read_text())

    def names_of(node):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return {node.name}
        if isinstance(node, ast.Assign):
            return {t.id for t in node.targets if isinstance(t, ast.Name)}
        return set()

    kept = [node for node in tree.body if names_of(node) & set(wanted)]
    missing = set(wanted) - set().union(*map(names_of, kept), set())
    if missing:
        raise SystemExit(f"{path}: no {', '.join(sorted(missing))}: the package has changed")
    made = module(name, **globals_of_it)
    exec(compile(ast.Module(kept, []), str(path), "exec"), vars(made))
    return made


def _add(name, module):
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)
    return module
