"""A wheel with the compiled modules in it: `python -m bluebridge.images.wheel FOLDER`.

pip builds the wheel of the sources; the build of exactly these sources, made now if the cache has
none, is added below `bluebridge/native`, and the wheel's name then says for which Python and
machine it is. Another Python runs the sources in it.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from bluebridge.compiled import INSTALLED
from bluebridge.hot_modules import DEVICE
from bluebridge.images import device_build
from bluebridge.images.cache import HOME, PACKAGE, Cache
from bluebridge.images.report import exit_status, run, say


def make(folder: Path) -> Path:
    """Make the wheel in `folder`; return its path. Raises `ImageError`."""
    built = device_build.ensure(DEVICE, Cache())
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", scratch]
        run([*command, copied(Path(scratch, "source"))], what="pip wheel")
        (plain,) = Path(scratch).glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return with_build(plain, built, folder)


def copied(folder: Path) -> Path:
    """Copy what a wheel is made of into the new folder `folder`; return it.

    setuptools works beside the sources, where another build of this checkout would meet it.
    """
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(HOME / name, folder)
    return folder


def with_build(plain: Path, build: Path, folder: Path) -> Path:
    """Copy the wheel `plain` to `folder` with the extension modules of `build`; return the copy."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"{version}-{version}-{platform}"
    name, release, *_ = plain.stem.split("-")
    target = folder / f"{name}-{release}-{tag}.whl"
    info = f"{name}-{release}.dist-info"
    with zipfile.ZipFile(plain) as source:
        files = {entry: source.read(entry) for entry in source.namelist()}
    for path in sorted(build.glob("*.so")):
        files[f"bluebridge/{INSTALLED}/{build.name}/{path.name}"] = path.read_bytes()
    lines = files[f"{info}/WHEEL"].decode().splitlines()
    kept = [line for line in lines if not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    kept += ["Root-Is-Purelib: false", f"Tag: {tag}", ""]
    files[f"{info}/WHEEL"] = "\n".join(kept).encode()
    del files[f"{info}/RECORD"]
    rows = [f"{entry},sha256={_digest(data)},{len(data)}" for entry, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as result:
        for entry, data in files.items():
            result.writestr(entry, data)
    return target


def _digest(data: bytes) -> str:
    """Return the digest of a file in the form of RECORD (PEP 427)."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main() -> int:
    """Make the wheel that the command line asks for; return 0, or 1 after one line."""
    return exit_status(lambda: say(str(make(Path(sys.argv[1])))))


if __name__ == "__main__":
    sys.exit(main())
