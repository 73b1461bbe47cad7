"""Adds lines of the source to the stacks that a kernel prints, if it was built here.

That is the work of Linux's scripts/decode_stacktrace.sh, with one run of `addr2line` for a file
rather than two programs for a frame.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bluebridge.images import kernel_build, kernel_tree, sandbox
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.kmod import scratch_folder
from bluebridge.images.recipes.kernel_source import KernelToolsRecipe
from bluebridge.images.report import ImageError
from bluebridge.images.sandbox import Bind

MOST_FRAMES = 256
"""The frames of one text that are looked up; a guest writes the text."""
_FRAME = re.compile(
    r"(?P<name>[\w.]+)\+0x(?P<offset>[0-9a-f]{1,8})/0x(?P<size>[0-9a-f]{1,8})"
    r"(?: \[(?P<module>\w+)[^]\n]*\])?"
)
_SYMBOL = re.compile(r"^([0-9a-f]+) (\w) (\S+)$", re.MULTILINE)
"""A line of System.map."""
_ROW = re.compile(r"^(\S+) *\|([0-9a-f]+)\| *[tTwW] *\|.*\|(\S+)$", re.MULTILINE)
"""A function in the output of `nm -f sysv`: its name, its address and its section."""
_EXACT = "IP:"
"""What is before a frame of an instruction (RIP: 0010:); others are where a call returns to."""
_KERNEL = "/work/build/vmlinux"
_ANY = -1
"""The size of functions of modules, which kallsyms counts otherwise."""
_PREFIXES = ("/source/", "/build/", "./")


@dataclass(frozen=True)
class _Frame:
    """A place in a stack: `name+offset/size [module]`."""

    name: str
    offset: int
    size: int
    module: str
    """Empty for the kernel itself."""


@dataclass(frozen=True)
class _Place:
    """An address in a file, in one of its sections where each has addresses of its own."""

    file: str
    section: str
    address: int


def with_lines(text: str, artefacts: Artefacts | None = None) -> str:
    """Return `text`, messages of a kernel, with `(file:line)` behind each frame of its stacks.

    It is the text as it was where the tree of that kernel is not here.
    """
    artefacts = artefacts or Artefacts()
    if (folder := _kernel_of(text, artefacts)) is None:
        return text
    found = {frame for _, frame in _frames(text)}
    try:
        lines = _Tree(folder, artefacts).lines(found)
    except (ImageError, OSError):
        return text
    told, at = [], 0
    for match, frame in _frames(text):
        told.append(text[at : match.end()])
        told.append(f" ({lines[frame]})" if frame in lines else "")
        at = match.end()
    return "".join([*told, text[at:]])


def _kernel_of(text: str, artefacts: Artefacts) -> Path | None:
    """Return the folder of the kernel, built here, whose release the head of a stack names."""
    for debug in (False, True):
        folder = kernel_build.built(artefacts.cache, debug)
        names = [] if folder is None else [each.name for each in folder.glob("lib/modules/*")]
        if any(re.search(rf"(?:^|\s){re.escape(name)} #\d", text) for name in names):
            return folder
    return None


def _frames(text: str) -> Iterator[tuple[re.Match[str], _Frame]]:
    """Yield the frames of a text.

    What a call returns to may be the next line's, so that such a frame is taken one byte before.
    """
    for number, match in enumerate(_FRAME.finditer(text)):
        if number == MOST_FRAMES:
            return
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        offset = int(match["offset"], 16)
        offset -= offset > 0 and _EXACT not in before
        yield match, _Frame(match["name"], offset, int(match["size"], 16), match["module"] or "")


class _Tree:
    """The files of one kernel that have symbols and lines, as a sandbox sees them in `/work`."""

    def __init__(self, folder: Path, artefacts: Artefacts) -> None:
        self._folder = folder
        self._cache = artefacts.cache
        self._work = kernel_tree.place(folder)
        self._tools = artefacts.built(KernelToolsRecipe(artefacts.cache, artefacts.packages))

    def lines(self, frames: set[_Frame]) -> dict[_Frame, str]:
        """Return `file:line` of frames; an inlined function's is before that of its caller.

        Raises `ImageError`.
        """
        symbols = {name: self._symbols(name) for name in {frame.module for frame in frames}}
        grouped: dict[tuple[str, str], dict[_Frame, int]] = defaultdict(dict)
        for frame in frames:
            known = symbols[frame.module].get(frame.name, {})
            start = known.get(frame.size, known.get(_ANY))
            if start is not None:
                grouped[start.file, start.section][frame] = start.address + frame.offset
        found: dict[_Frame, str] = {}
        for (file, section), addresses in grouped.items():
            told = self._addr2line(file, section, sorted(set(addresses.values())))
            found |= {frame: told[at] for frame, at in addresses.items() if at in told}
        return found

    def _symbols(self, module: str) -> dict[str, dict[int, _Place]]:
        """Return the functions of the kernel or of a module: by name, then by size."""
        found: dict[str, dict[int, _Place]] = defaultdict(dict)
        if not module:
            rows = _SYMBOL.findall((self._folder / "System.map").read_text())
            for (start, kind, name), (end, _, _) in pairwise(rows):
                if kind in "tTwW":
                    # The distance to the next symbol is the size that the kernel prints.
                    address = int(start, 16)
                    found[name][int(end, 16) - address] = _Place(_KERNEL, "", address)
        elif (path := self._module(module)) is not None:
            for name, start, section in _ROW.findall(self._run(["nm", "-f", "sysv", path])):
                found[name][_ANY] = _Place(path, section, int(start, 16))
        return found

    def _module(self, name: str) -> str | None:
        """Return where a module is with its lines: one of the kernel's own, or one of `kmod`."""
        paths = [self._work / kernel_tree.MODULES / f"{name}.ko"]
        listing = self._work / "build/modules.order"
        for line in listing.read_text().split() if listing.is_file() else []:
            path = Path(line).with_suffix(".ko")
            if path.stem.replace("-", "_") == name:
                paths.append(self._work / "build" / path)
        there = next((each for each in paths if each.is_file()), None)
        return None if there is None else f"/work/{there.relative_to(self._work)}"

    def _addr2line(self, file: str, section: str, addresses: Sequence[int]) -> dict[int, str]:
        """Return the lines of addresses of one file, those of inlined functions first."""
        within = ["-j", section] if section else []
        words = [f"{address:#x}" for address in addresses]
        printed = self._run(["addr2line", "-a", "-i", "-e", file, *within, *words])
        found: dict[int, str] = {}
        for part in re.split(r"^0x", printed, flags=re.MULTILINE)[1:]:
            address, *places = part.splitlines()
            told = [_short(place) for place in places if "?" not in place]
            if told:
                found[int(address, 16)] = ", ".join(told)
        return found

    def _run(self, command: list[str]) -> str:
        """Run a program of the toolchain; what it reads was built from source of anybody's."""
        launcher = sandbox.choose_launcher()
        with scratch_folder(self._cache) as root:
            sandbox.prepare(root)
            (root / "work").mkdir()
            binds = [Bind(self._work, "work")]
            _, printed = sandbox.run(launcher, self._tools / "root", root, command, binds)
        return printed


def _short(place: str) -> str:
    """Return `mm/slub.c:2345` of the place that the compiler noted."""
    place = place.partition(" (")[0]
    for prefix in _PREFIXES:
        place = place.removeprefix(prefix)
    return place
