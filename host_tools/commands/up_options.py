"""Options of `up` that cannot go together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bluebridge.device.layout.ntb.models import MODELS, names
from bluebridge.host_tools.errors import UsageError


def check_together(options: argparse.Namespace, hardware: Sequence[str]) -> None:
    """Raises `UsageError` if one option takes away what another one is about.

    `hardware` are the arguments for the device server.
    """
    if options.bare:
        _check_bare(options, hardware)
    if options.bar_sizes != "small" and not options.ntb:
        raise UsageError("--bar-sizes is about a bridge's windows", "add --ntb")
    if options.window_alias:
        _check_alias(options)
    if options.sm is not None and options.link != "infiniband":
        raise UsageError("--sm is about InfiniBand", "add --link infiniband")
    if options.sm == "none" and options.driver == "kernel":
        raise UsageError(
            "ports stay down until opensm runs in a guest",
            "use --driver none, then `bluebridge-mlx4` and `opensm` there",
        )
    if options.link == "infiniband" and options.driver == "guest":
        raise UsageError(
            "the Python driver speaks RoCE, not InfiniBand", "add --driver kernel, or none"
        )


def _check_alias(options: argparse.Namespace) -> None:
    able = tuple(model for model in MODELS if model.window_alias)
    if options.ntb not in [model.name for model in able]:
        raise UsageError(f"--window-alias is about the bridge {names(able)}", "add --ntb")
    if options.cold:
        raise UsageError("--window-alias wants restored guests", "leave out --cold")


def _check_bare(options: argparse.Namespace, hardware: Sequence[str]) -> None:
    about = list(hardware[:1])
    if options.ntb:
        about.append("--ntb")
    if options.driver == "kernel":
        about.append("--driver kernel")
    if about:
        raise UsageError("bare guests have no hardware", f"leave out --bare, or {about[0]}")
