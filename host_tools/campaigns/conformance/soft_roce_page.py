"""The results between the HCA and Soft-RoCE as docs/soft-roce-conformance.md."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.journal import Entry
from bluebridge.host_tools.campaigns.conformance.page import failed, programs_table
from bluebridge.host_tools.campaigns.conformance.setups import RXE
from bluebridge.images.source import HOME

PAGE = HOME / "docs" / "soft-roce-conformance.md"
_TEXT = """\
# Conformance with Soft-RoCE

Stock programs of Debian 13 between a guest with the emulated ConnectX-3 Pro under mlx4_ib and one
with a virtio NIC under rdma_rxe, Linux's Soft-RoCE, an implementation of RoCE v2 that nobody here
wrote ([Soft-RoCE as the peer](soft-roce.md)). `python -m
bluebridge.host_tools.campaigns.conformance --only rxe-` runs them and writes this page.

| setup | what it is |
|---|---|
{setups}

## Failed
{failed}

## Programs
{programs}

## What rxe made of the packets
{judged}
"""


def page(entries: Sequence[Entry]) -> str:
    """The whole page."""
    judged = [
        f"- {entry.setup}: {verdict.reason}"
        for entry in entries
        for verdict in entry.verdicts
        if entry.name == "packets that rxe refused"
    ]
    return _TEXT.format(
        setups="\n".join(f"| {setup.name} | {setup.what} |" for setup in RXE),
        failed=failed(entries) or "None.",
        programs=programs_table(entries, RXE),
        judged="\n".join(judged),
    )
