"""krping's command string, data, statistics, states and log lines."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.guest.errors import DeviceError
from bluebridge.guest.protocols.krping import control
from bluebridge.guest.protocols.krping.__main__ import exit_status, own_address
from bluebridge.guest.protocols.krping.host import Result
from bluebridge.guest.protocols.krping.option_string import (
    MAX_SIZE,
    MemMode,
    OptionError,
    Options,
    Test,
    parse,
)
from bluebridge.guest.protocols.krping.progress import (
    RESERVOIR,
    Latencies,
    Log,
    State,
    Stats,
    after_advertisement,
    after_go_ahead,
    ping_data,
    shown,
)


def test_examples_of_the_readme() -> None:
    """Server and client, defaults of the README."""
    server = parse("server,addr=192.168.69.127,port=9999\n")
    assert server.server and (server.addr, server.port) == ("192.168.69.127", 9999)
    client = parse("client,addr=192.168.69.127,port=9999,count=100")
    assert not client.server
    assert (client.count, client.size, client.tx_depth) == (100, 64, 64)
    assert (client.mem_mode, client.test) == (MemMode.DMA, Test.PING)
    assert parse("server,port=1").addr == "0.0.0.0"
    assert parse("client,addr=1.2.3.4,port=1").count == 0


def test_all_options() -> None:
    """Everything that may stand together."""
    given_options = parse(
        "client,addr=1.2.3.4,port=65535,count=7,size=4096,verbose,validate,mem_mode=reg,"
        "server_inv,local_dma_lkey,read_inv,tx-depth=8"
    )
    assert given_options == Options(
        server=False, addr="1.2.3.4", port=65535, count=7, size=4096, verbose=True, validate=True,
        mem_mode=MemMode.REG, server_inv=True, local_dma_lkey=True, read_inv=True, tx_depth=8,
    )  # fmt: skip
    other = parse("client,addr6=FD00::0:1%ens3,port=1,tos=104,fr,mem_mode=reg")
    assert (other.addr, other.tos, other.test) == ("fd00::1", 104, Test.FR)
    bench = parse("server,port=1,bw,duplex,count=5,txdepth=9")
    assert (bench.test, bench.duplex, bench.tx_depth) == (Test.BW, True, 9)
    assert parse("client,addr=1.2.3.4,port=1,rlat,poll,count=5").poll


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("", "an option is empty"),
        ("server,,port=1", "an option is empty"),
        ("port=1", "must be either client or server"),
        ("client,server,port=1", "must be either client or server"),
        ("server", "port=N is missing"),
        ("client,port=1", "addr=A.B.C.D is missing"),
        ("client,addr=0.0.0.0,port=1", "cannot connect to 0.0.0.0"),
        ("server,port=0", "Invalid port 0"),
        ("server,port=65536", "Invalid port 65536"),
        ("server,port=-1", "port=-1 is no number"),
        ("server,port=nine", "port=nine is no number"),
        ("server,port=", "option port needs an operand"),
        ("server,port", "option port needs an operand"),
        ("server=1,port=1", "option server takes no operand"),
        ("server,port=1,port=2", "option port is given twice"),
        ("server,port=1,speed=9", "unknown option speed"),
        ("server,addr=1.2.3,port=1", "addr=1.2.3 is no IPv4 address"),
        ("server,addr=host,port=1", "addr=host is no IPv4 address"),
        ("server,port=1,size=0", "Invalid size 0"),
        (f"server,port=1,size={MAX_SIZE + 1}", "Invalid size"),
        ("server,port=1,mem_mode=mw", "unknown mem_mode mw"),
        ("server,port=1,server_inv", "server_inv is valid only with mem_mode=reg"),
        ("server,port=1,read_inv,mem_mode=dma", "read_inv is valid only with mem_mode=reg"),
        ("server,port=1,duplex", "duplex is valid only with bw"),
        ("server,port=1,bw,poll,count=1", "poll is valid only with rlat"),
        ("server,port=1,bw,rlat,count=1", "Pick only one test"),
        ("client,addr=1.2.3.4,port=1,fr,bw", "Pick only one test: fr, bw, rlat, wlat"),
        ("server,port=1,fr", "must be client to run fr"),
        ("server,port=1,tos=256", "Invalid tos 256"),
        ("server,port=1,addr6=1.2.3.4", "addr6=1.2.3.4 is no IPv6 address"),
        ("server,port=1,addr6=::1,addr=1.2.3.4", "addr and addr6 are given"),
        ("client,port=1,addr6=::", "cannot connect to ::"),
        ("server,port=1,wlat", "wlat needs count=N"),
        ("server,port=1,wlat,count=1,mem_mode=reg", "wlat is valid only with mem_mode=dma"),
        ("server,port=1,bw,count=1,validate", "bw moves no ping data"),
        ("server,port=1,tx-depth=0", "Invalid tx-depth 0"),
    ],
)
def test_wrong_commands_get_one_line(command: str, reason: str) -> None:
    """One line says what is wrong."""
    with pytest.raises(OptionError) as caught:
        parse(command)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


@given(st.text(max_size=80))
def test_any_text_is_an_option_or_an_error(command: str) -> None:
    """Nothing else comes out."""
    try:
        parse(command)
    except OptionError as error:
        assert str(error)


def test_own_address() -> None:
    """The server's address is its HCA's; a client takes the next one of the /24."""
    assert own_address(parse("server,addr=192.168.69.127,port=1"), None) == "192.168.69.127"
    assert own_address(parse("client,addr=192.168.69.127,port=1"), None) == "192.168.69.128"
    assert own_address(parse("client,addr=192.168.69.254,port=1"), None) == "192.168.69.1"
    assert own_address(parse("client,addr=192.168.69.127,port=1"), "10.0.0.9") == "10.0.0.9"
    assert own_address(parse("client,addr6=fd00::1,port=1"), None) == "fd00::2"
    for command, ip in (("server,port=1", None), ("server,port=1", "nowhere")):
        with pytest.raises(OptionError):
            own_address(parse(command), ip)


def test_ping_data_of_the_module() -> None:
    """The text krping shows with verbose for the first pings."""
    text = b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs"
    assert ping_data(0, 65) == text + b"\0"
    assert ping_data(1, 24) == b"rdma-ping-1: BCDEFGHIJK\0"
    assert ping_data(58, 16) == b"rdma-ping-58: A\0"
    assert ping_data(57, 16) == b"rdma-ping-57: z\0"
    assert shown(ping_data(3, 1000)) == ping_data(3, 1000)[:64].decode()


@given(st.integers(0, 10**9), st.integers(1, 5000))
def test_ping_data_has_its_size_and_one_nul(ping: int, size: int) -> None:
    """The server writes up to the NUL: there is exactly one, at the end."""
    data = ping_data(ping, size)
    assert len(data) == size and data.index(0) == size - 1


def test_states_are_numbered_as_in_the_modules_log() -> None:
    """`wait for RDMA_READ_ADV state 10` names ERROR."""
    assert [state.name for state in State][5:] == [
        "RDMA_READ_ADV", "RDMA_READ_COMPLETE", "RDMA_WRITE_ADV", "RDMA_WRITE_COMPLETE", "ERROR",
    ]  # fmt: skip
    assert (State.IDLE, State.RDMA_READ_ADV, State.ERROR) == (1, 6, 10)


def test_a_servers_and_a_clients_iteration() -> None:
    """Advertisements and go-aheads move the state on."""
    assert after_advertisement(State.CONNECT_REQUEST) is State.RDMA_READ_ADV
    assert after_advertisement(State.RDMA_READ_COMPLETE) is State.RDMA_WRITE_ADV
    assert after_advertisement(State.CONNECTED) is State.RDMA_READ_ADV
    assert after_go_ahead(State.RDMA_READ_ADV) is State.RDMA_WRITE_ADV
    assert after_go_ahead(State.RDMA_WRITE_ADV) is State.RDMA_WRITE_COMPLETE


def test_nine_columns() -> None:
    """In the order of the README."""
    stats = Stats(1, 2, 3, 4, 5, 6, 7, 8)
    assert stats.line("1-mlx4_0") == "1-mlx4_0 1 2 3 4 5 6 7 8"
    assert list(stats.by_name("x"))[:3] == ["name", "send_bytes", "send_msgs"]


def test_latencies() -> None:
    """Percentiles, and a bound on what is kept."""
    latencies = Latencies()
    assert latencies.summary() is None
    for value in range(1, 101):
        latencies.add(float(value))
    assert latencies.summary() == {"min": 1.0, "p50": 51.0, "p99": 100.0}
    for _ in range(RESERVOIR):
        latencies.add(7.0)
    assert latencies.count == RESERVOIR + 100
    summary = latencies.summary()
    assert summary is not None and (summary["min"], summary["p50"]) == (1.0, 7.0)


def test_exit_status() -> None:
    """An interrupted run is fine only when it was endless or done."""
    done = Result(True, 3, 3, None, {})
    assert exit_status(done) == 0
    assert exit_status(replace(done, cancelled=True)) == 0
    assert exit_status(replace(done, ok=False, error="why")) == 1
    assert exit_status(replace(done, ok=False, error="why", cancelled=True)) == 130


def test_log_lines(tmp_path: Path) -> None:
    """The kernel's style, to the stream and the file alike."""
    stream = io.StringIO()
    log = Log(stream, str(tmp_path / "log"))
    log.note("DISCONNECT EVENT...")
    log.line("recv completion")
    log.close()
    log.line("only to the stream by now")
    lines = stream.getvalue().splitlines()
    assert re.fullmatch(r"\[ *\d+\.\d{6}\] krping: DISCONNECT EVENT\.\.\.", lines[0])
    assert re.fullmatch(r"\[ *\d+\.\d{6}\] recv completion", lines[1])
    assert (tmp_path / "log").read_text().splitlines() == lines[:2]


def test_the_control_file_is_in_place_before_its_device_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that writes to it early waits, and makes no plain file; all is taken away again."""
    path, (read, write) = tmp_path / "krping", os.pipe()

    @contextmanager
    def mounted(directory: Path, name: str) -> Iterator[int]:  # root alone may
        assert directory.is_dir()
        yield write

    def device(*_: object, **__: object) -> None:
        assert path.is_symlink() and path.readlink() == tmp_path / ".krping/control"
        raise DeviceError("there is no device")

    monkeypatch.setattr(control, "need_fuse", lambda: None)
    monkeypatch.setattr(control, "mounted", mounted)
    monkeypatch.setattr(control, "open_chosen", device)
    words = ["--ip", "192.168.69.127", "--path", str(path)]
    assert control.main(words) == 1
    assert capsys.readouterr().err == "krping: there is no device\n"
    assert not list(tmp_path.iterdir()) and os.read(read, 1) == b""
    os.close(read)
    path.write_text("server,addr=192.168.69.127,port=9999\n")
    assert control.main(words) == 1
    assert "is another file: remove it" in capsys.readouterr().err
