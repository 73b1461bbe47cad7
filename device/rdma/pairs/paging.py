"""What engines ask of a face when pages are absent that an operation needs.

An operation that is `awaited` has not happened: its engine keeps it, lets nothing overtake it, and
begins it anew when the face calls `resume` of the engine, or fails it where that says so. Until
then a responder answers that it is not ready.
"""

from __future__ import annotations

from typing import Final


class Paging:
    """The requests of one queue pair for pages; this one cannot have any brought in.

    Each method returns whether the pages are awaited; the operation fails otherwise. There is one
    request at a time of each kind: while it is open, asking again changes nothing.
    """

    def for_send(self, index: int, *, brings: bool, done: int) -> bool:
        """Ask for the memory of the send request `index`, of which `done` bytes need none.

        It `brings` data there, or takes them from there.
        """
        return False

    def for_receive(self, index: int, srqn: int, length: int, done: int) -> bool:
        """Ask for the memory of the receive `index`, into which `length` bytes go behind `done`.

        `srqn` is the SRQ that it came from, -1 for none.
        """
        return False

    def for_peer(self, key: int, address: int, length: int, *, changes: bool) -> bool:
        """Ask for the memory at `address` of `key`, which the peer wants, and maybe `changes`."""
        return False


NO_PAGING: Final = Paging()
