"""Measure, print, write docs/benchmarks.json and the tables of docs/benchmarks.md from it."""

from __future__ import annotations

import argparse
import sys

from bluebridge.host_tools.errors import LabError, Reporter
from bluebridge.host_tools.lab.artefacts import ensure_artefacts
from tests.campaigns.bench import hosts, krping, ntrdma, page, rdma, rtrs

_SECTIONS = {"hca": krping, "hosts": hosts, "rdma": rdma, "ntrdma": ntrdma, "rtrs": rtrs}


def main() -> int:
    """Exit status 0 when everything was measured, whether or not the goals were met."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.bench", description=__doc__)
    names = ", ".join(_SECTIONS)
    parser.add_argument("sections", nargs="*", help=f"what to measure: {names} (default: all)")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(_SECTIONS):
        parser.error(f"there is no section {', '.join(unknown)}; there are {names}")
    progress = Reporter()
    measured: page.Results = {}
    try:
        accelerator = ensure_artefacts(progress).emulator.accelerator
        for name in options.sections or _SECTIONS:
            measured[name] = page.section(_SECTIONS[name].figures(progress), accelerator)
            print(page.table(measured[name].figures))
            page.write(measured)  # a later section that fails leaves the earlier ones
    except LabError as error:
        print(error.transcript, file=sys.stderr)
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"written: {page.RESULTS}, {page.PAGE}")
    for name, sentence in page.quotes(page.read()).items():
        if sentence not in " ".join((page.PAGE.parent.parent / name).read_text().split()):
            print(f"{name} should say: {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
