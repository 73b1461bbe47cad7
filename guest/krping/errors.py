"""How a krping thread ends when it does not end well."""

from __future__ import annotations


class KrpingError(Exception):
    """The run failed; the text is one line for the user."""


class Cancelled(Exception):
    """The user ended the run."""
