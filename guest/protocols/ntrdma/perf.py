"""The measuring program over NTRDMA: `guest.perf` with `--provider ntrdma`."""

import sys

from bluebridge.guest.perf.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["--provider", "ntrdma", *sys.argv[1:]]))
