"""Runs in a guest: a file of the kernel's selftests of network drivers, in its folder.

    python3 in_guest_selftest.py NAME

The test of checksums of Linux 6.12.117 reads the name of the peer's device from an attribute of the
environment, which only the library of later kernels has: it is added here. A test that has made
traffic waits for the end of the client's output, which does not come over a shared connection of
ssh, then for that of a server of which it has ended the shell alone: here the server ends first.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module
from typing import Any


def _end_server_first(library: Any) -> None:
    """Have traffic end at its server, after which the client ends by itself."""
    load = library.GenerateTraffic
    stop = load.stop

    def end(traffic: Any, verbose: object = None) -> None:
        library.cmd(f"pkill -f 'iperf3 -s -1 -p {traffic.port}'", fail=False)
        stop(traffic, verbose)

    load.stop = end


def main() -> None:
    """Run it as a script."""
    name = os.path.abspath(sys.argv.pop(1))
    sys.argv[0] = name
    sys.path[0] = "."
    library = import_module("lib.py")
    if hasattr(library, "GenerateTraffic"):
        _end_server_first(library)
    environment = library.NetDrvEpEnv
    if not hasattr(environment, "remote_ifname"):
        environment.remote_ifname = os.environ["NETIF"]
    runpy.run_path(name, run_name="__main__")


if __name__ == "__main__":
    main()
