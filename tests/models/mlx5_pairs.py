"""Pairs of guests with a ConnectX-5 each that send and receive frames."""

from __future__ import annotations

from struct import pack

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.cqe import CQE
from bluebridge.device.layout.mlx5.steering import Destination
from tests.models.mlx5_node import Mlx5Node


class Pair:
    """Two guests, of which the first sends and the second receives."""

    def __init__(self, kind: type[Mlx5Node] = Mlx5Node) -> None:
        fabric = LocalFabric()
        self.a, self.b = kind(1, fabric), kind(2, fabric)
        self.sq = self.a.make_sq()
        self.rq = self.b.make_rq()
        self.tir = self.b.make_tir(self.rq)
        self.b.steer(self.tir)
        for node in (self.a, self.b):
            node.open()
            node.events()

    def frame(self, payload: bytes, kind: bytes = b"\x88\xb5") -> bytes:
        return self.b.mac + self.a.mac + kind + payload

    def udp(self, payload: bytes, tag: bytes = b"") -> bytes:
        """A datagram whose checksums are empty."""
        ip = pack(
            ">BBHHHBBH8s", 0x45, 0, 28 + len(payload), 1, 0, 64, 17, 0, b"\x0a\0\0\1\x0a\0\0\2"
        )
        l4 = pack(">HHHH", 1000, 2000, 8 + len(payload), 0)
        return self.b.mac + self.a.mac + tag + b"\x08\0" + ip + l4 + payload


class Net:
    """A sender, and a receiver with four rings, a direct TIR on each."""

    def __init__(self, kind: type[Mlx5Node] = Mlx5Node) -> None:
        fabric = LocalFabric()
        self.a, self.b = kind(1, fabric), kind(2, fabric)
        self.sq = self.a.make_sq()
        self.rqs = [self.b.make_rq() for _ in range(4)]
        self.tirs = [self.b.make_tir(rq) for rq in self.rqs]
        self.a.open()
        self.b.open()

    def arrivals(self, frame: bytes) -> list[int]:
        """Places of the rings that get a frame."""
        for rq in self.rqs:
            self.b.post_receive(rq, address=0x200000)
        self.a.send(self.sq, frame)
        self.a.completions(self.sq)
        return [place for place, rq in enumerate(self.rqs) for _ in self.b.completions(rq)]

    def hashes(self, frame: bytes) -> list[tuple[int, int, int]]:
        """Place of the ring, hash and headers that were hashed, for each copy of a frame."""
        for rq in self.rqs:
            self.b.post_receive(rq, address=0x200000)
        self.a.send(self.sq, frame)
        return [
            (place, CQE.get(cqe, "hash"), cqe[0x10])
            for place, rq in enumerate(self.rqs)
            for cqe in self.b.completions(rq)
        ]

    def frame(self, mac: bytes, tag: bytes = b"") -> bytes:
        return mac + self.a.mac + tag + b"\x88\xb5" + bytes(50)

    def packet(
        self, protocol: int = 17, sport: int = 1, dport: int = 2, *, swapped: bool = False
    ) -> bytes:
        """UDP or TCP over IPv4 from 10.0.0.1 to 10.0.0.2."""
        size = 20 if protocol == 6 else 8
        l4 = pack(">HHHH", sport, dport, size + 10, 0).ljust(size, b"\0") + bytes(10)
        addresses = [b"\x0a\0\0\1", b"\x0a\0\0\2"]
        both = b"".join(reversed(addresses) if swapped else addresses)
        ip = pack(">BBHHHBBH8s", 0x45, 0, 20 + len(l4), 1, 0, 64, protocol, 0, both)
        return self.b.mac + self.a.mac + b"\x08\0" + ip + l4

    def set(self, *what: object, **more: object) -> None:
        """Set an entry of the receiver's tables."""
        self.b.command(Opcode.SET_FLOW_TABLE_ENTRY, self.b.entry(*what, **more))  # type: ignore[arg-type]

    def tir(self, place: int) -> list[tuple[int, int]]:
        return [(Destination.TIR, self.tirs[place])]

    def table(self, number: int) -> list[tuple[int, int]]:
        return [(Destination.FLOW_TABLE, number)]
