"""The state changes of queue pairs that every provider has: each call is one `modify`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags, QpState, QpType
from bluebridge.guest.verbs.values import AddressVector, QpAttr

_STEPS = {
    (QpState.RESET, QpState.INIT),
    (QpState.INIT, QpState.INIT),
    (QpState.INIT, QpState.RTR),
    (QpState.RTR, QpState.RTS),
    (QpState.RTS, QpState.RTS),
}
"""The steps that are allowed besides those to RESET, and to ERR from all other states."""


def check_step(current: QpState, target: QpState) -> None:
    """Raise `VerbsError` if a queue pair without a send queue drain cannot take this step."""
    if target is QpState.RESET or (current, target) in _STEPS:
        return
    if target is not QpState.ERR or current is QpState.RESET:
        raise VerbsError(f"a queue pair cannot go from {current.name} to {target.name}")


class StateChanges(ABC):
    """The base class of queue pairs of a provider, which implement `modify` (`QueuePair`)."""

    type: QpType

    @abstractmethod
    def modify(self, attr: QpAttr) -> None:
        """Change state and attributes; raises `VerbsError`."""

    def modify_init(self, access: AccessFlags | int = 0, qkey: int | None = None) -> None:
        self.modify(QpAttr(QpState.INIT, access=access, qkey=qkey))

    def modify_rtr(
        self,
        address_vector: AddressVector | None = None,
        dest_qpn: int | None = None,
        rq_psn: int = 0,
        *,
        path_mtu: int = 1024,
        max_dest_rd_atomic: int = 16,
        min_rnr_timer: int = 12,
    ) -> None:
        attr = QpAttr(QpState.RTR)
        if self.type in (QpType.RC, QpType.UC):
            attr.address_vector, attr.dest_qpn = address_vector, dest_qpn
            attr.rq_psn, attr.path_mtu = rq_psn, path_mtu
        if self.type is QpType.RC:
            attr.max_dest_rd_atomic, attr.min_rnr_timer = max_dest_rd_atomic, min_rnr_timer
        self.modify(attr)

    def modify_rts(
        self,
        sq_psn: int = 0,
        *,
        timeout: int = 14,
        retry_count: int = 7,
        rnr_retry: int = 7,
        max_rd_atomic: int = 16,
    ) -> None:
        attr = QpAttr(QpState.RTS, sq_psn=sq_psn)
        if self.type is QpType.RC:
            attr.timeout, attr.retry_count = timeout, retry_count
            attr.rnr_retry, attr.max_rd_atomic = rnr_retry, max_rd_atomic
        self.modify(attr)

    def modify_err(self) -> None:
        self.modify(QpAttr(QpState.ERR))

    def modify_reset(self) -> None:
        self.modify(QpAttr(QpState.RESET))
