"""Builds the compiled modules of this checkout: `python -m bluebridge.images.device_build`.

mypyc writes C (`bluebridge.images.mypyc_code`), one file for each module, which this compiles side
by side and links; object files of an earlier build are used again where the C did not change. The
result is an artefact of the cache, found by `bluebridge.compiled`. Where it cannot be built, one
line says why, and the same sources run interpreted.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from bluebridge.compiled import SUFFIX, Group
from bluebridge.hot_modules import DEVICE
from bluebridge.images import extensions
from bluebridge.images.cache import HOME, Cache
from bluebridge.images.report import ImageError, run, say

FLAGS = ("-O2", "-fPIC", "-fwrapv", "-fno-strict-aliasing", "-DNDEBUG", "-w", "-g0")
OBJECTS = "objects"
"""Folder of a build's object files, named by what they were made of."""
EXTENSIONS = "extensions.json"


def ensure(group: Group, cache: Cache) -> Path:
    """The folder of the group's build, built now if it is missing; raises `ImageError`."""
    name = f"compiled-{group.name}"
    return cache.ensure(name, group.key(), lambda folder: build(group, folder, cache))


def build(group: Group, folder: Path, cache: Cache) -> None:
    """Build the group's extension modules into `folder`; raises `ImageError`."""
    compiler = extensions.compiler()
    code = folder / "code"
    write_code(group, code)
    told = json.loads((code / EXTENSIONS).read_text())
    headers = sorted({path for module in told.values() for path in module["headers"]})
    words = [compiler, *FLAGS, f"-I{sysconfig.get_path('include')}"]
    objects = _Objects(words, headers, folder / OBJECTS, cache, f"compiled-{group.name}")
    modules = {name: module["sources"] for name, module in told.items()}
    extensions.build(modules, objects.made_of, (compiler, "-shared"), folder, SUFFIX)
    shutil.rmtree(code)


def write_code(group: Group, folder: Path) -> None:
    """Write the C files of the group and `extensions.json` to the new folder `folder`."""
    folder.mkdir()
    run(
        [sys.executable, "-m", "bluebridge.images.mypyc_code", group.name, folder],
        what="mypyc",
        cwd=HOME,
        env={"PYTHONPATH": str(HOME), "BLUEBRIDGE_PURE": "1"},
    )


class _Objects:
    """Object files, each named by a digest of the compiler's words, all headers and its C file.

    `headers` are the folders of the headers; those of earlier builds lay elsewhere.
    """

    def __init__(
        self, words: Sequence[str], headers: Sequence[str], folder: Path, cache: Cache, name: str
    ) -> None:
        folder.mkdir()
        self._command = [*words, *(f"-I{path}" for path in headers)]
        self._folder = folder
        self._earlier = sorted(cache.root.glob(f"{name}-*/{OBJECTS}"))
        digest = sha256(" ".join(words).encode())
        digest.update(run([words[0], "--version"], what="C compiler").encode())
        for header in sorted(path for place in headers for path in Path(place).rglob("*.h")):
            digest.update(header.read_bytes())
        self._common = digest.digest()

    def made_of(self, source: Path) -> Path:
        """Return the object file of a C file, compiled unless an earlier build has it."""
        name = sha256(self._common + source.read_bytes()).hexdigest() + ".o"
        made = self._folder / name
        for folder in self._earlier:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, made)
                return made
        run([*self._command, "-c", source, "-o", made], what=f"compile {source.name}")
        return made


def start() -> subprocess.Popen[bytes]:
    """Start the builds as a process beside other work; it reports its end and exits with 0."""
    return subprocess.Popen(
        ["nice", sys.executable, "-m", "bluebridge.images.device_build"], cwd=HOME
    )


def main() -> int:
    """Build the device's modules if they are missing; return the exit status.

    It is 0 also where they cannot be built: all works interpreted as well.
    """
    try:
        ensure(DEVICE, Cache())
    except ImageError as error:
        say(f"the device runs interpreted: {error}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
