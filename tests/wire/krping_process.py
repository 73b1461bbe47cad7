"""krping as a process of its own, so that it can be killed.

    python -m tests.wire.krping_process SOCKET IP COMMAND

Standard output is its log.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bluebridge.guest.protocols.krping.host import host_of, open_hca
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.host_tools.vfio_user.bus import SocketBus


def main() -> int:
    """Run the command; 0 when the run was right."""
    path, ip, command = sys.argv[1:]
    host = host_of(open_hca(SocketBus(Path(path))), ip, Log())
    result = host.run(command)
    host.close()
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
