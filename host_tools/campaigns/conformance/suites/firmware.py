"""Firmware that boots a guest over its HCA."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.program import FAILED, PASSED, Program, Verdict
from bluebridge.host_tools.campaigns.conformance.session import ADDRESSES, Session, bring_up

_LOOK = "cat /proc/cmdline; lspci -n -d 15b3:"
_SIGNS = ("initrd=root.zst", "15b3:673c")
"""The initrd on the kernel's command line and the id of the HCA, which a booted guest shows."""


def programs() -> list[Program]:
    """iPXE, over Ethernet and over IPoIB."""
    return [Program("firmware", "iPXE boots a guest from its peer", steps=_boot)]


def _boot(session: Session) -> Sequence[Verdict]:
    """Boot guest a so, give its HCA to the kernel, then bring it up as the others expect it."""
    pair = session.pair
    seconds = pair.restart(pair.a.name, pair.network_boot(pair.a.name))
    said = pair.a.run(_LOOK).text
    bring_up(pair.a)
    pair.a.run(f"ping -c 3 -w 20 {ADDRESSES['b']}", timeout=30)
    pair.restart(pair.a.name)
    bring_up(pair.a)
    session.words = session.find_words()
    if not all(sign in said for sign in _SIGNS):
        return [Verdict(FAILED, f"after {seconds:.0f} s it is not what iPXE booted: {said}")]
    return [Verdict(PASSED)]
