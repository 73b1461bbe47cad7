"""Builds C programs for guests, with the headers and libraries of their Debian.

Sources and the headers beside them are copied into a sandbox (`bluebridge.images.sandbox`) and
compiled there; only the finished program is copied out.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images import sandbox
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.kmod import BuildFailed, WrongRequest, deliver, scratch_folder
from bluebridge.images.recipes.compiler import CompilerRecipe
from bluebridge.images.report import ImageError, say

FLAGS = ("-O2", "-g", "-Wall")
LIBRARIES = ("-libverbs", "-lrdmacm", "-lm", "-pthread")
_FOLDER = "program"
_PROGRAM = "a.out"
_COMPILE = f'cd /{_FOLDER} && exec gcc "$@" -o {_PROGRAM}'


def build(
    sources: Sequence[Path],
    output: Path,
    flags: Sequence[str] = (),
    *,
    artefacts: Artefacts | None = None,
) -> Path:
    """Build the program of `sources`, files of one folder, as `output`; returns its path.

    `flags` are more words for the compiler, such as -DDEBUG or -lrt. The file is replaced
    atomically, not at all on failure. Raises `WrongRequest`, `BuildFailed`, other `ImageError`s.
    """
    folder = _folder_of(sources)
    launcher = sandbox.choose_launcher()
    artefacts = artefacts or Artefacts()
    compiler = artefacts.folder(CompilerRecipe.name)
    with scratch_folder(artefacts.cache) as root:
        sandbox.prepare(root)
        inside = root / _FOLDER
        inside.mkdir()
        for path in [*sources, *folder.glob("*.h")]:
            _copy(path, inside)
        sandbox.make_writable_by(inside, launcher.uid)
        names = [path.name for path in sources]
        command = ["sh", "-c", _COMPILE, "cc", *FLAGS, *names, *flags, *LIBRARIES]
        done, printed = sandbox.run(launcher, compiler / "root", root, command)
        program = inside / _PROGRAM
        if not done or program not in sandbox.plain_files(inside):
            lines = printed.strip().splitlines() or ["no reason given"]
            reason = next((line for line in lines if "error:" in line), lines[0])
            raise BuildFailed(
                f"{sources[0]} does not build: {reason}", "see the compiler's output above", printed
            )
        for line in printed.splitlines():
            say(line)
        (built,) = deliver({program: output.name}, output.parent, mode=0o755)
    return built


def _folder_of(sources: Sequence[Path]) -> Path:
    for path in sources:
        if not path.is_file():
            raise WrongRequest(f"there is no file {path}", "name a C source")
        if path.suffix != ".c":
            raise WrongRequest(f"{path} is no C source", "name files that end with .c")
    folders = {path.resolve().parent for path in sources}
    if len(folders) > 1:
        raise WrongRequest("the sources are in several folders", "name files of one folder")
    return folders.pop()


def _copy(path: Path, folder: Path) -> None:
    try:
        shutil.copyfile(path, folder / path.name)
    except OSError as error:
        raise ImageError(f"cannot read {path}: {error.strerror}", "make it readable") from error
