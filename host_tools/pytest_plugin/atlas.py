"""`pytest --bluebridge-atlas PATTERN -- PROGRAM`: every fault in turn under a user's program."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bluebridge.device import cards
from bluebridge.host_tools.atlas.atlas_command import chosen_faults
from bluebridge.host_tools.atlas.programs import SERVER, Program
from bluebridge.host_tools.errors import UsageError

_CELLS = Path(__file__).with_name("atlas_cells.py")
_COMM_LETTERS = 15
PROGRAM = pytest.StashKey[Program]()
FILE = pytest.StashKey["Path | None"]()


def configure(config: pytest.Config) -> None:
    """Have the session collect the faults instead of tests. Raises `pytest.UsageError`."""
    given = [str(word) for word in config.invocation_params.args]
    words = given[given.index("--") + 1 :] if "--" in given else []
    if not words:
        raise pytest.UsageError("--bluebridge-atlas: name a program behind --")
    try:
        chosen_faults(config.getoption("--bluebridge-atlas"), cards.DEFAULT)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    file = Path(words[0]) if Path(words[0]).is_file() else None
    config.stash[FILE] = file
    config.stash[PROGRAM] = program_of(words, file, config.getoption("--bluebridge-atlas-server"))
    config.args[:] = [str(_CELLS)]


def program_of(words: list[str], file: Path | None, server: str) -> Program:
    """Return the program that the words run in guest a; a file is copied to both guests."""
    name = Path(words[0]).name
    first = f"/tmp/{name}" if file else words[0]
    line = shlex.join([first, *words[1:]]).replace("'{peer}'", SERVER).replace("{peer}", SERVER)
    return Program(
        name, "a program of the user", line, name[:_COMM_LETTERS], 0, 0,
        server=server, ready="sleep 1" if server else "", limit=10.0,
    )  # fmt: skip
