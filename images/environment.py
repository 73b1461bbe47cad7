"""Makes the virtual environment of a checkout and installs what pyproject.toml names.

Run by `make` with the host's Python before the environment exists: standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.cache import HOME
from bluebridge.images.report import exit_status, run, step

# Modules are compiled to bytecode when they are first imported: most never are.
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "-e")


def make(folder: Path, extras: Sequence[str] = ()) -> None:
    """Make an environment with this project, its requirements and those of `extras`.

    One that is there is added to. Raises `ImageError`.
    """
    python = folder / "bin" / "python"
    project = f".[{','.join(extras)}]" if extras else "."
    if not python.exists():
        with step("virtual environment"):
            run([sys.executable, "-m", "venv", folder], what="making an environment")
    with step("Python packages"):
        run([python, *PIP, project], what="installing Python packages", cwd=HOME)


def main() -> int:
    """`python3 -m bluebridge.images.environment FOLDER [EXTRA…]`: status 0, or 1 after a line."""
    return exit_status(lambda: make(Path(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
