"""`python -m bluebridge.device`: the process that is the hardware.

    python -m bluebridge.device --hca name=a,socket=a.sock --hca name=b,socket=b.sock --log DIR

Prints `ready` when all sockets listen; ends on SIGTERM and SIGINT.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from bluebridge.device.buslog.writer import EventLog, FileLog
from bluebridge.device.pci import collector
from bluebridge.device.pyvfio_user import LibraryError
from bluebridge.device.server import sandbox, settings
from bluebridge.device.server.process import Server
from bluebridge.device.server.settings import ServerSettings

log = logging.getLogger(__name__)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bluebridge.device", description="the emulated hardware"
    )
    settings.add_arguments(parser)
    arguments = parser.parse_args(argv)
    if not (arguments.hca or arguments.ntb or arguments.dma):
        parser.error("there is nothing to serve: give --hca, --ntb or --dma")
    return arguments


def _contain(wanted: ServerSettings) -> None:
    """Give up what a server that is ready does not need."""
    removable = {path.parent.resolve() for path in wanted.sockets}
    writable = [path for path in (wanted.log,) if path is not None and path.exists()]
    if wanted.control is not None:
        writable.append(wanted.control.parent)  # `profile stop` writes there
    for line in sandbox.enter(sorted(removable), [path.resolve() for path in writable]):
        log.warning("%s", line)


def main(argv: list[str] | None = None) -> int:
    """Run the server; the exit status."""
    arguments = _arguments(argv)
    try:
        wanted = settings.of_arguments(arguments)
        options = wanted.options
        logging.basicConfig(
            level=options.trace.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        wanted.check()
        events = EventLog()
        if wanted.log is not None:
            events = FileLog(wanted.log, capture=options.capture, total=options.log_limit)
        server = Server(wanted, events)
    except (ValueError, OSError, LibraryError) as error:
        print(f"bluebridge device server: {error}", file=sys.stderr)
        return 2
    collector.start()
    try:
        if not options.no_sandbox:
            _contain(wanted)
        server.run()
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    status = main()
    # The sockets' closers may just have started a thread: where one begins while the interpreter
    # ends, Python 3.11 reads a thread state that is gone (_PyThreadState_SetCurrent).
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
