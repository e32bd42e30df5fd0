# SPDX-License-Identifier: Apache-2.0
"""python -m wideep: the command, where the wheel with the command is installed."""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Iterator


def _candidates() -> Iterator[Path]:
    """Where an installer may have put the command; first where it says that it did."""
    try:
        files = metadata.distribution("wideep").files or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "wideep" and file.parent.name == "bin":
            yield Path(os.path.abspath(file.locate()))
    yield Path(sysconfig.get_path("scripts")) / "wideep"
    yield Path(__file__).resolve().parent.parent / "bin" / "wideep"  # pip install --target


def main() -> None:
    for command in _candidates():
        if command.is_file() and os.access(command, os.X_OK):
            os.execv(command, [str(command), *sys.argv[1:]])
    sys.exit(
        "wideep: this installation of the Python package has no command; install the wheel that "
        "scripts/wheel.sh makes, or build the command (docs/install.md)"
    )


if __name__ == "__main__":
    main()
