"""tshark, also where the tests are run by root.

Wireshark 4.4 loads no script of a user for root, and says nothing of it: the dissector is silently
not there. So root becomes another user, who may still read and write root's files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

NOBODY = 65534
OVERRIDE = "+dac_override"
"""The capability that containers leave to root as well."""
UNPRIVILEGED = (
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    f"--inh-caps={OVERRIDE}",
    f"--ambient-caps={OVERRIDE}",
)


def tshark(*words: object, env: Mapping[str, str] | None = None) -> str:
    """Standard output of `tshark WORDS...`; `env` is added to the environment."""
    user = UNPRIVILEGED if os.geteuid() == 0 else ()
    done = subprocess.run(
        [*user, "tshark", *(str(word) for word in words)],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Lua" not in done.stderr
    return done.stdout
