"""The number of objects of each kind that the context memory has room for (core/profile.c)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Profile:
    """The sizes of the context tables, as powers of two.

    The default is small (a laboratory needs hundreds of objects, not hundreds of thousands), so all
    of it is mapped at start; Linux maps pieces on demand.
    """

    log_qps: int = 10
    log_srqs: int = 7
    log_cqs: int = 9
    log_eqs: int = 7
    log_mpts: int = 12
    log_mtts: int = 17


DEFAULT = Profile()
