"""Runs in a guest: a file of the kernel's selftests of network drivers, in its folder.

    python3 in_guest_selftest.py NAME

The test of checksums of Linux 6.12.117 reads the name of the peer's device from an attribute of the
environment, which only the library of later kernels has: it is added here.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module


def main() -> None:
    """Run it as a script."""
    name = os.path.abspath(sys.argv.pop(1))
    sys.argv[0] = name
    sys.path[0] = "."
    environment = import_module("lib.py").NetDrvEpEnv
    if not hasattr(environment, "remote_ifname"):
        environment.remote_ifname = os.environ["NETIF"]
    runpy.run_path(name, run_name="__main__")


if __name__ == "__main__":
    main()
