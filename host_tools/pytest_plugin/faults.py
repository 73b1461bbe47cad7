"""Faults by name for tests: each is a method, and undone at the end of its `with` block."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from contextlib import AbstractContextManager

from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.host_tools.lab.hardware import ArmedFault, Hardware

Arm = Callable[..., AbstractContextManager[ArmedFault]]


class Faults:
    """The faults of one HCA, with underscores: `faults.reg_mr_fails(nth=2)`.

    Parameters are those of `bluebridge fault list`. `faults.of("b")` are those of another HCA.
    """

    def __init__(self, hardware: Hardware, hca: str = "a") -> None:
        self._hardware = hardware
        self._hca = hca

    def of(self, hca: str) -> Faults:
        """Return the faults of HCA `hca`: `b`, or `a.1` for the second one of guest a."""
        return Faults(self._hardware, hca)

    def __getattr__(self, method: str) -> Arm:
        """Return what arms the fault of that name; raises `AttributeError` for an unknown one."""
        name = method.replace("_", "-")
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, n=1)
            mend = f"did you mean {near[0].replace('-', '_')}?" if near else ""
            raise AttributeError(f"there is no fault {name!r}; {mend or '`bluebridge fault list`'}")

        def arm(**words: str | int) -> AbstractContextManager[ArmedFault]:
            return self._hardware.fault(self._hca, name, **words)

        return arm

    def __dir__(self) -> list[str]:
        """Return the names of all faults, for completion."""
        return ["of", *(name.replace("-", "_") for name in BY_NAME)]
