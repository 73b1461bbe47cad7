"""Measure, print, write JSON and docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys

from bluebridge.host_tools.campaigns.bench import krping, ntrdma, page, rdma, rtrs
from bluebridge.host_tools.campaigns.bench.page import Figure
from bluebridge.host_tools.errors import LabError, Reporter
from bluebridge.host_tools.lab.artefacts import ensure_artefacts

_SECTIONS = {"hca": krping, "rdma": rdma, "ntrdma": ntrdma, "rtrs": rtrs}


def main() -> int:
    """Exit status 0 when everything was measured, whether or not the goals were met."""
    parser = argparse.ArgumentParser(
        prog="python -m bluebridge.host_tools.campaigns.bench", description=__doc__
    )
    names = ", ".join(_SECTIONS)
    parser.add_argument("sections", nargs="*", help=f"what to measure: {names} (default: all)")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(_SECTIONS):
        parser.error(f"there is no section {', '.join(unknown)}; there are {names}")
    progress = Reporter()
    figures: list[Figure] = []
    try:
        for name in options.sections or _SECTIONS:
            figures += _SECTIONS[name].figures(progress)
        about = page.machine(ensure_artefacts(progress).emulator.accelerator)
    except LabError as error:
        print(error.transcript, file=sys.stderr)
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(page.table(figures))
    print(f"written: {page.write_json(about, figures)}")
    page.write_page(about, figures)
    print(f"written: {page.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
