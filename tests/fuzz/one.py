"""`python -m tests.fuzz.one TARGET [libFuzzer's options] FOLDER...`: fuzz one target until told."""

from __future__ import annotations

import logging
import sys

import atheris


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    name = sys.argv.pop(1)
    # What is logged would be printed for each input; `targets.run` listens for errors itself.
    logging.lastResort = None
    analyzer = "bluebridge.host_tools.analyzer"
    readers = [f"{analyzer}.pcap", f"{analyzer}.wire_check"]
    parts = ["bluebridge.device", "bluebridge.guest.agent", *readers]
    with atheris.instrument_imports(include=parts):
        from tests.fuzz import mutate, targets
    more = {}
    if name in mutate.FORMS:
        more["custom_mutator"] = mutate.mutator(name)
    atheris.Setup(sys.argv, lambda data: targets.run(name, data), **more)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
