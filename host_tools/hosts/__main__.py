"""`python -m bluebridge.host_tools.hosts SIDE FUNCTION... -- PROGRAM...`: a program as a side.

PROGRAM is what follows `python3` on a command line in a guest: `-m MODULE` or a file, and words.
"""

from __future__ import annotations

import sys

from bluebridge.host_tools.hosts.program import play


def main() -> None:
    """Run the program; its end is ours."""
    words = sys.argv[1:]
    cut = words.index("--")
    name, *functions = words[:cut]
    play(name, functions, words[cut + 1 :])


if __name__ == "__main__":
    main()
