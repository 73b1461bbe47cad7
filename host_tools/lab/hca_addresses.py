"""The IP address of each port of the HCAs of a pair: a subnet for each pair of ports."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.host_tools.lab.config import LabConfig

_SUBNETS_OF_AN_HCA = 2
"""One for each port that it may have."""


@dataclass(frozen=True)
class PortAddress:
    """A port in a guest: HCA `hca`, from 0, port `port`, from 1."""

    hca: int
    port: int
    ip: str

    @property
    def bits(self) -> str:
        """The address with the length of its prefix."""
        return f"{self.ip}/24"


def port_addresses(config: LabConfig, name: str) -> list[PortAddress]:
    """Return the addresses of guest `name`: 10.9.0.x, 10.9.1.x for its ports, 10.9.2.x for the next
    HCA.

    None without HCAs.
    """
    if not config.hca:
        return []
    host = config.names.index(name) + 1
    return [
        PortAddress(hca, port, f"10.9.{hca * _SUBNETS_OF_AN_HCA + port - 1}.{host}")
        for hca in range(config.hcas)
        for port in range(1, config.options.ports + 1)
    ]


def port_name(guest: str, address: PortAddress) -> str:
    """Return the name of a port in `bluebridge link` and the control socket:

    `a/1`, `a/2`, `a.1/1`.
    """
    return f"{guest}.{address.hca}/{address.port}" if address.hca else f"{guest}/{address.port}"
