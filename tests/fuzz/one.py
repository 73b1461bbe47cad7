"""`python -m tests.fuzz.one WORKERS FILE`: fuzz targets, so many at a time.

Each line of the file is a list in JSON: where to write what is said of a target, the target, its
seconds, then libFuzzer's options, folders of inputs last. When a target ends, its line's number
and its exit status are printed.

The seconds begin when the inputs in the folders have been run: no target is left without time on
a slow machine. The targets share one start, since to instrument the modules takes longer than
some of them are fuzzed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import NoReturn

import atheris

_ANALYZER = "bluebridge.host_tools.analyzer"
_READERS = (f"{_ANALYZER}.pcap", f"{_ANALYZER}.wire_check")

_FUZZED = [
    *("bluebridge.device", "bluebridge.guest.agent", "bluebridge.host_tools.keeper.control"),
    *_READERS,
]

# atheris names each module that it instruments.
with redirect_stderr(StringIO()), atheris.instrument_imports(include=_FUZZED):
    from tests.fuzz import mutate, targets


def fuzz(name: str, seconds: float, words: Sequence[str]) -> NoReturn:
    """Fuzz a target until its time is over or something is found; ends the process."""
    # libFuzzer tries the empty input before those of the folders.
    inputs = 1 + sum(len(os.listdir(word)) for word in words if os.path.isdir(word))
    turn = targets.Turn(name, inputs, seconds)

    def run(data: bytes) -> None:
        turn.run(data)
        if turn.over:
            print(f"{turn.runs} runs in {seconds:.1f} s", file=sys.stderr, flush=True)
            os._exit(0)

    more = {"custom_mutator": mutate.mutator(name)} if name in mutate.FORMS else {}
    atheris.Setup([name, *words], run, **more)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


def main(workers: int, lines: Sequence[str]) -> None:
    """Fuzz the target of each line in a process of its own."""
    # What is logged would be printed for each input; `targets.run` listens for errors itself.
    logging.lastResort = None
    running: dict[int, int] = {}
    for number, line in enumerate(lines):
        if len(running) == workers:
            _wait(running)
        if not (child := os.fork()):
            said, name, seconds, *words = json.loads(line)
            # atheris tells what was found on standard output, where `main` tells who has ended.
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream.fileno())
            fuzz(name, seconds, words)
        running[child] = number
    while running:
        _wait(running)


def _wait(running: dict[int, int]) -> None:
    child, status = os.wait()
    print(running.pop(child), os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]).read_text().splitlines())
