"""The role that a context gives its queue pair: service type 7 means four different things."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import QPC, ServiceType
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.rdma.vocabulary import Role

ETHERNET_MTU_MSGMAX: Final = 0xFF


def role_of(qpn: int, context: bytes | bytearray, special_base: int) -> Role:
    """Return the role in a context; raises `CommandError` for services that are not offered.

    `special_base` is the first of the eight special QP numbers (CONF_SPECIAL_QP), 0 before.
    """
    service = QPC.get(context, "service")
    if service == ServiceType.RC:
        return Role.RC
    if service == ServiceType.UC:
        return Role.UC
    if service == ServiceType.UD:
        return Role.UD
    if service == ServiceType.XRC:
        return Role.XRC
    if service != ServiceType.MLX:
        raise CommandError(Status.BAD_PARAM, f"service type {service}")
    if QPC.get(context, "rss"):
        return Role.RSS
    if special_base and qpn in (special_base, special_base + 1):
        return Role.SMI
    if special_base and qpn in (special_base + 2, special_base + 3):
        return Role.GSI
    # a hidden GSI queue pair of RoCE v2 has a general number and a limit on its messages
    full = QPC.get(context, "mtu_msgmax")
    return Role.ETHERNET if full in (ETHERNET_MTU_MSGMAX, 0) else Role.GSI
