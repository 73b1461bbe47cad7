"""`python3 -m bluebridge.guest.agent [fd=NUMBER]... [root=FOLDER]`.

Serves the virtio-serial ports of its name, or the given file descriptors instead.
"""

from __future__ import annotations

import signal
import sys

from bluebridge.guest.agent.server import Server


def main(words: list[str]) -> None:
    """Run until killed. `words` are the command line; a parser would cost start-up time."""
    options = [word.partition("=")[::2] for word in words]
    unknown = [name for name, _ in options if name not in ("fd", "root")]
    if unknown:
        sys.exit(f"bluebridge.guest.agent: unknown option {unknown[0]!r}\n{__doc__}")
    for number in (signal.SIGINT, signal.SIGQUIT):
        # /bin/sh has background jobs ignore them, and what we start would inherit that.
        signal.signal(number, signal.SIG_DFL)
    server = Server(next((value for name, value in options if name == "root"), "/"))
    descriptors = [int(value) for name, value in options if name == "fd"]
    for fd in descriptors:
        server.serve(fd)
    if not descriptors:
        server.look()
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
