"""Makes the virtual environment of a checkout and installs what pyproject.toml names.

Run by `make` with the host's Python before the environment exists: standard library only.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.cache import HOME
from bluebridge.images.report import NO_ROOM, ImageError, exit_status, step

# Modules are compiled to bytecode when they are first imported: most never are.
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "-e")
NETWORK_SIGNS = (
    *("NewConnectionError", "ConnectTimeoutError", "ConnectionError", "ReadTimeout"),
    *("ProxyError", "name resolution", "Name or service not known", "Network is unreachable"),
    "Connection refused",
)
"""The messages of pip when it cannot reach its package index."""


def make(folder: Path, extras: Sequence[str] = ()) -> None:
    """Make an environment with this project, its requirements and those of `extras`.

    One that is there is added to. Raises `ImageError`.
    """
    python = folder / "bin" / "python"
    project = f".[{','.join(extras)}]" if extras else "."
    if not python.exists():
        with step("virtual environment"):
            _run([sys.executable, "-m", "venv", str(folder)])
    with step("Python packages"):
        _run([str(python), *PIP, project])


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        cwd=HOME,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise failure(done.stdout, done.returncode)


def failure(output: str, status: int) -> ImageError:
    """The error for venv or pip that ended with `status` after printing `output`."""
    if "No space left on device" in output:
        return ImageError("installing Python packages: the disk is full", NO_ROOM)
    if "CERTIFICATE_VERIFY_FAILED" in output:
        return ImageError(
            "installing Python packages: the package index shows a certificate nobody here trusts",
            "name the file of your network's certificates in PIP_CERT",
        )
    if any(sign in output for sign in NETWORK_SIGNS):
        return ImageError(
            "installing Python packages: the package index cannot be reached",
            "check the network, or name another index in PIP_INDEX_URL",
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("ERROR:", "Error:"))]
    detail = (telling or lines)[-1:] or [f"exit status {status}"]
    return ImageError(
        f"installing Python packages failed: {detail[0]}", "see that message; then `make setup`"
    )


def main() -> int:
    """`python3 -m bluebridge.images.environment FOLDER [EXTRA…]`: status 0, or 1 after a line."""
    return exit_status(lambda: make(Path(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
