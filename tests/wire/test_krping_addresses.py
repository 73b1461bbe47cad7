"""krping's options that concern the path: addr6 and tos; and `fr`, which moves nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.device.layout.net.roce import GRH
from bluebridge.host_tools.analyzer import log_command as cli
from tests.models.capture_reader import parse, read_file
from tests.models.verbs.krping_pair import SERVER_IP, Side, start
from tests.wire.krping_pair import opened
from tests.wire.server import serving

SERVER_IP6, CLIENT_IP6 = "fd00:69::127", "fd00:69::128"
TOS = 104


def test_a_connection_between_ipv6_addresses_in_a_traffic_class(
    vfio_user_library: Path, tmp_path: Path
) -> None:
    """Neighbours are found by solicitation; all packets of the connection are of its class."""
    hcas = [word for name in "ab" for word in ("--hca", f"name={name},socket={tmp_path / name}")]
    words = [*hcas, "--log", str(tmp_path / "log")]
    with (
        serving("bluebridge.device", words, tmp_path / "server.log"),
        opened(tmp_path / "a", SERVER_IP6) as a,
        opened(tmp_path / "b", CLIENT_IP6) as b,
    ):
        address = f"addr6={SERVER_IP6},port=9999,count=20,validate"
        served = start(a, f"server,{address}")
        asked = start(b, f"client,{address},tos={TOS}").result()
        assert asked.ok and served.result().ok, (asked.error, served.result().error)
        assert served.result().stats["read_bytes"] == 20 * 64
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args([str(tmp_path / "log"), "--pcap", str(tmp_path / "f")])) == 0
    frames = read_file(tmp_path / "f")
    assert [frame.data[54] for frame in frames if frame.data[12:14] == b"\x86\xdd"][-2:] == [
        135,
        136,
    ]
    packets = [(frame, packet) for frame in frames if (packet := parse(frame)) is not None]
    assert len(packets) > 100
    assert {GRH.get(frame.data, "traffic_class", 14) for frame, _ in packets} == {TOS}
    assert all(packet.whole for _, packet in packets)


def test_fast_registrations_one_after_the_other(sides: tuple[Side, Side]) -> None:
    """The server is one without a test, which sees a client that comes and goes."""
    address = f"addr={SERVER_IP},port=9999"
    served = start(sides[0], f"server,{address}")
    asked = start(sides[1], f"client,{address},fr,count=500,size=20000").result()
    assert (asked.ok, asked.iterations) == (True, 500), asked.error
    assert served.result().ok and served.result().iterations == 0
    assert "fr_test: done!" in sides[1].text


def test_fast_registrations_until_the_run_is_ended(sides: tuple[Side, Side]) -> None:
    """Without `count` they go on until somebody ends them."""
    address = f"addr={SERVER_IP},port=9999"
    served = start(sides[0], f"server,{address}")
    asked = start(sides[1], f"client,{address},fr")
    while not (asked.running and asked.running[0].iterations):
        pass
    asked.running[0].cancel()
    assert asked.result().cancelled and served.result().iterations == 0
