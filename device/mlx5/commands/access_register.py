"""Registers of ACCESS_REG, as the command that reads or writes them sees them."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.mlx5.adapter import Adapter

Access = Callable[[Adapter, bytes, bool], bytes]
"""Returns the register, by what the command brought of it; stores that first for a write (`True`).

A read brings the fields that choose what is meant, such as a port. What it brings may be shorter
than the register. Raises `bluebridge.device.mlx5.settings.refused.Refused`.
"""
