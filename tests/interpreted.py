"""`python -m tests.interpreted` prints the files of tests that are worth a run on both builds.

Those are the files from which a compiled module is reached: by imports, or by its name in a test,
as of a program that is started. For the others the code is the same in both runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bluebridge.hot_modules import DEVICE
from tests.unit import house

FOLDERS = ("tests.unit", "tests.wire")
ANY_COMMAND = "host_tools.cli"
"""It imports commands by their names, which no import shows."""
HOME = house.HOME
_NAME = re.compile(r"\b(?:bluebridge|tests)(?:\.\w+)+")


def files() -> list[str]:
    """Paths from the checkout, sorted."""
    known = house.modules()
    hot = {ANY_COMMAND, *(name.removeprefix("bluebridge.") for name in DEVICE.modules())}

    @cache
    def needed(name: str) -> frozenset[str]:
        return frozenset(_needed(name, known))

    def reaches(name: str) -> bool:
        seen, waiting = {name}, [name]
        while waiting:
            more = needed(waiting.pop()) - seen
            if more & hot:
                return True
            seen |= more
            waiting += more
        return False

    tests = (name for name in known if name.startswith(FOLDERS) and ".test_" in name)
    return sorted(str(known[name].relative_to(HOME)) for name in tests if reaches(name))


def _needed(name: str, known: dict[str, Path]) -> Iterator[str]:
    """Modules that one imports or names, its packages, and the fixtures of its folder."""
    path = known[name]
    named = list(house.imports(name, path))
    if name.startswith("tests."):
        named += _NAME.findall(path.read_text(encoding="utf-8"))
    parts = name.split(".")
    packages = [".".join(parts[:count]) for count in range(1, len(parts))]
    fixtures = [f"{package}.conftest" for package in packages]
    yield from (found for target in named if (found := house.ours(target, known)) in known)
    yield from (each for each in (*packages, *fixtures) if each in known)


if __name__ == "__main__":
    print(*files())
