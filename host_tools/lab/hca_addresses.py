"""The IP address of each port of a pair's HCAs: one subnet for each pair of connected ports."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.host_tools.lab.config import LabConfig

_SUBNETS_OF_AN_HCA = 2
"""One for each port that it may have."""


@dataclass(frozen=True)
class PortAddress:
    """The IP address `ip` of a port in a guest: HCA `hca`, from 0, and port `port`, from 1."""

    hca: int
    port: int
    ip: str

    @property
    def bits(self) -> str:
        """The address with the length of its prefix, such as `10.9.0.1/24`."""
        return f"{self.ip}/24"


def port_addresses(config: LabConfig, name: str) -> list[PortAddress]:
    """Return the addresses of the HCA ports of guest `name`, none without HCAs.

    The first HCA's ports are in 10.9.0.0/24 and 10.9.1.0/24, those of the next HCA in 10.9.2.0/24
    and 10.9.3.0/24.
    """
    if not config.has_hca(name):
        return []
    host = config.host_number(name)
    return [
        PortAddress(hca, port, f"10.9.{hca * _SUBNETS_OF_AN_HCA + port - 1}.{host}")
        for hca in range(config.hcas)
        for port in range(1, config.options.ports + 1)
    ]


def port_name(guest: str, address: PortAddress) -> str:
    """Return a port's name in `bluebridge link` and the control socket: `a/1`, `a/2`, `a.1/1`."""
    return f"{guest}.{address.hca}/{address.port}" if address.hca else f"{guest}/{address.port}"
