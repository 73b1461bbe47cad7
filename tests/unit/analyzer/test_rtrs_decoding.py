"""Messages of RTRS and RNBD in the lines of `bluebridge log --decode`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.fabric.capture import CapturedFabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Datagram, Request, Route
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ib.mad import MAD, MgmtClass
from bluebridge.device.layout.net import rnbd, rtrs
from bluebridge.device.layout.net.cm import IP_HEADER_SIZE, REJ, REP, REQ, CmAttribute
from bluebridge.device.layout.net.roce import Op
from bluebridge.host_tools.analyzer.log_command import VIEWS
from bluebridge.host_tools.analyzer.views.view import Options
from tests.models.capture_traffic import IPV4_A, IPV4_B, MAC_A, MAC_B, Cable

CLIENT, SERVER = 0x49, 0x52
COMM_ID = 0xABC
DEPTH = 512
TO_SERVER = Route(MAC_A, MAC_B, IPV4_A, IPV4_B)
TO_CLIENT = Route(MAC_B, MAC_A, IPV4_B, IPV4_A)
IO = bytes(rnbd.IO.pack(type=4, device_id=3, sector=2048, rw=1 | 1 << 9, bi_size=512))


class Wire:
    """A client on device a, a server on device b; `told` is what is said of each message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = FileLog(folder)
        network = LocalFabric()
        self.ends = {}
        for name, mac in (("a", MAC_A), ("b", MAC_B)):
            tap, port = CapturedFabric(network, self.log, name), Cable(mac)
            tap.attach(port)
            tap.announce(port, port.addresses, up=True)
            self.ends[name] = tap, port

    def mad(self, name: str, attribute: CmAttribute, data: bytes | bytearray) -> None:
        """A message of the connection manager."""
        head = MAD.pack(base_version=1, mgmt_class=int(MgmtClass.CM), class_version=2, method=3,
                        attr_id=int(attribute), tid=7)  # fmt: skip
        route = TO_SERVER if name == "a" else TO_CLIENT
        tap, port = self.ends[name]
        tap.send(port, Datagram(route, 1, 1, 0, 0, bytes(40), bytes(head + data)))

    def ask(self, magic: int = rtrs.MAGIC, qpn: int = CLIENT, comm_id: int = COMM_ID) -> None:
        """The client's REQ."""
        private = rtrs.CONN_REQ.pack(
            magic=magic, version=rtrs.VERSION, cid=1, cid_num=3, recon_cnt=2,
            sess_uuid=bytes(range(16)), paths_uuid=bytes(range(16, 32)), first_conn=1,
        )  # fmt: skip
        data = bytes(IP_HEADER_SIZE) + bytes(private)
        self.mad("a", CmAttribute.REQ, REQ.pack(
            local_comm_id=comm_id, local_qpn=qpn, private_data=data.ljust(92, b"\0"),
        ))  # fmt: skip

    def accept(self, magic: int = rtrs.MAGIC, qpn: int = SERVER) -> None:
        """The server's REP."""
        private = rtrs.CONN_RSP.pack(
            magic=magic, version=rtrs.VERSION, queue_depth=DEPTH, max_io_size=131072
        )
        self.mad("b", CmAttribute.REP, REP.pack(
            local_comm_id=5, remote_comm_id=COMM_ID, local_qpn=qpn,
            private_data=bytes(private).ljust(196, b"\0"),
        ))  # fmt: skip

    def send(self, name: str, op: Op, data: bytes = b"", immediate: int = 0) -> None:
        """A request of one of the sides."""
        route = TO_SERVER if name == "a" else TO_CLIENT
        qpns = (CLIENT, SERVER) if name == "a" else (SERVER, CLIENT)
        tap, port = self.ends[name]
        views = [memoryview(data)] if data else []
        tap.send(port, Request(op, route, *qpns, 5, 1, len(data), views, immediate=immediate))

    def lines(self, **wanted: object) -> list[str]:
        """Return what is said of each event, behind what is said without RTRS."""
        self.log.flush()
        reader = LogReader(self.folder)
        chosen = Filter(**wanted)  # type: ignore[arg-type]
        shown = VIEWS["events"].lines(reader, Options(chosen, decoded=True, json=True))
        return [json.loads(line)["decoded"] for line in shown]

    def last(self) -> str:
        """Return what RTRS is said to be in the last message."""
        said = self.lines()[-1]
        return said[said.index("RTRS") :] if "RTRS" in said else ""


@pytest.fixture
def wire(tmp_path: Path) -> Wire:
    """A connection that is set up."""
    wire = Wire(tmp_path)
    wire.ask()
    wire.accept()
    return wire


def request(chunk: int, offset: int) -> int:
    """The immediate of an I/O request."""
    return rtrs.immediate(0, chunk << rtrs.offset_bits(DEPTH) | offset)


def write(data: bytes, user: bytes) -> bytes:
    """Return what a client writes into a chunk to have data written."""
    return data + user + bytes(rtrs.RDMA_WRITE.pack(type=2, usr_len=len(user)))


def read(user: bytes, pieces: int = 1) -> bytes:
    """And to have data read."""
    head = rtrs.RDMA_READ.pack(type=3, usr_len=len(user), sg_cnt=pieces)
    return user + bytes(head) + bytes(rtrs.SG_DESC.pack(addr=4096, key=7, len=512)) * pieces


def answer(chunk: int, errno: int = 0, kind: int = 1) -> int:
    """The immediate of a response."""
    return rtrs.immediate(kind, rtrs.response_payload(chunk, errno))


INFO_REQ = bytes(rtrs.INFO_REQ.pack(type=0, pathname=b"blk\n1".ljust(255, b"\0")))
INFO_RSP = bytes(
    rtrs.INFO_RSP.pack(type=1, sg_cnt=2) + rtrs.SG_DESC.pack(addr=0x10000, key=0x1200, len=4096)
)
RKEY = bytes(rtrs.RKEY_RSP.pack(type=4, buf_id=9, rkey=0x1234))
OPEN = bytes(rnbd.OPEN.pack(type=2, access_mode=1, dev_name=b"disk".ljust(255, b"\0")))
OPEN_RSP = bytes(rnbd.OPEN_RSP.pack(type=3, device_id=3, nsectors=4096, logical_block_size=512))
CLOSE = bytes(rnbd.CLOSE.pack(type=5, device_id=3))
SESSION = bytes(rnbd.SESS_INFO.pack(type=0, ver=2))


@pytest.mark.parametrize(
    ("name", "op", "data", "immediate", "said"),
    [
        ("a", Op.SEND, INFO_REQ, 0, "RTRS INFO_REQ session='blk\\n1'"),
        ("b", Op.SEND, INFO_RSP, 0, "RTRS INFO_RSP pieces=2 first=0x10000+4096 rkey=0x1200"),
        ("a", Op.WRITE_IMM, write(bytes(64), IO), request(9, 96),
         "RTRS IO_REQ chunk=9 offset=96 WRITE user=32, "
         "RNBD IO WRITE FUA device=3 sector=2048 bytes=512"),
        ("a", Op.WRITE_IMM, read(IO), request(511, 32),
         "RTRS IO_REQ chunk=511 offset=32 READ user=32, "
         "RNBD IO WRITE FUA device=3 sector=2048 bytes=512"),
        ("a", Op.WRITE_IMM, read(CLOSE, 0), request(0, 8),
         "RTRS IO_REQ chunk=0 offset=8 READ user=8, RNBD CLOSE device=3"),
        ("a", Op.WRITE_IMM, read(SESSION), request(0, 36),
         "RTRS IO_REQ chunk=0 offset=36 READ user=36, RNBD SESS_INFO version=2"),
        ("a", Op.WRITE_IMM, read(IO[:20]), request(0, 20),
         "RTRS IO_REQ chunk=0 offset=20 READ user=20, RNBD IO (short)"),
        ("a", Op.WRITE_IMM, read(b"\xff\xff\0\0"), request(0, 4),
         "RTRS IO_REQ chunk=0 offset=4 READ user=4"),
        ("a", Op.WRITE_IMM, b"nothing!", request(1, 2),
         "RTRS IO_REQ chunk=1 offset=2 (no message)"),
        ("a", Op.WRITE_IMM, write(bytes(4096), IO), request(1, 4128),
         "RTRS IO_REQ chunk=1 offset=4128 (message not kept)"),
        ("b", Op.WRITE_IMM, b"", answer(9), "RTRS IO_RSP chunk=9 errno=0"),
        ("b", Op.WRITE_IMM, b"", answer(9, 5), "RTRS IO_RSP chunk=9 errno=-5"),
        ("b", Op.SEND_IMM, RKEY, answer(9, 0, 2),
         "RTRS IO_RSP_W_INV chunk=9 errno=0, RKEY_RSP chunk=9 rkey=0x1234"),
        ("b", Op.SEND_INV, b"", 0x77, "RTRS invalidates rkey=0x77"),
        ("b", Op.WRITE, bytes(512), 0, "RTRS read data"),
        ("b", Op.WRITE, OPEN_RSP, 0,
         "RTRS read data, RNBD OPEN_RSP device=3 sectors=4096 block=512"),
        ("a", Op.WRITE_IMM, read(OPEN), request(2, 264),
         "RTRS IO_REQ chunk=2 offset=264 (message not kept), RNBD OPEN 'disk' RW"),
        ("a", Op.WRITE_IMM, b"", rtrs.immediate(8, 0), "RTRS HB_MSG"),
        ("b", Op.WRITE_IMM, b"", rtrs.immediate(9, 0), "RTRS HB_ACK"),
        ("b", Op.WRITE_IMM, b"", rtrs.immediate(0, 5), "RTRS unknown immediate 0x5"),
        ("a", Op.READ, b"", 0, ""),
        ("a", Op.SEND, b"\x05", 0, ""),
    ],
)  # fmt: skip
def test_what_a_message_says(
    wire: Wire, name: str, op: Op, data: bytes, immediate: int, said: str
) -> None:
    wire.send(name, op, data, immediate)
    assert wire.last() == said


def test_the_connection_manager_s_messages(wire: Wire) -> None:
    refusal = rtrs.CONN_RSP.pack(magic=rtrs.MAGIC, errno=0x10000 - 104)
    wire.mad("b", CmAttribute.REJ, REJ.pack(private_data=bytes(refusal).ljust(148, b"\0")))
    assert wire.lines() == [
        "MAD CM REQ tid=0x7 RTRS connection 1 of 3 recon=2 path=00010203 session=10111213 first",
        "MAD CM REP tid=0x7 RTRS queue_depth=512 max_io_size=131072",
        "MAD CM REJ tid=0x7 RTRS refuses errno=-104",
    ]


def test_other_connections_are_left_alone(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    wire.ask(magic=0x1234)
    wire.accept(magic=0x1234)
    wire.send("a", Op.WRITE_IMM, read(IO), request(0, 32))
    assert not any("RTRS" in line for line in wire.lines())


def test_a_queue_pair_that_is_used_again_is_what_it_is_then(wire: Wire) -> None:
    wire.send("a", Op.WRITE_IMM, b"", rtrs.immediate(8, 0))
    wire.ask(comm_id=COMM_ID + 1)
    wire.send("a", Op.WRITE_IMM, b"", 5)
    assert wire.lines()[2].endswith("RTRS HB_MSG")
    assert wire.last() == "RTRS IO_REQ payload=0x5"  # of a connection that nobody accepted


def test_a_filter_hides_the_connection_but_not_its_name(wire: Wire) -> None:
    wire.send("b", Op.WRITE_IMM, b"", answer(3))
    assert wire.lines(device="b", first=2)[-1].endswith("RTRS IO_RSP chunk=3 errno=0")
    assert wire.lines(kinds=frozenset((Kind.IRQ,))) == []


def test_damaged_messages_are_shown_as_such(wire: Wire) -> None:
    wire.log.keep(0, Kind.WIRE, 0, 0, 16, b"short", 17, SERVER)
    wire.log.keep(0, Kind.WIRE, 0, 0, 256, b"short", 19, 1)
    assert all("damaged" in line or "MAD" in line for line in wire.lines()[2:])
