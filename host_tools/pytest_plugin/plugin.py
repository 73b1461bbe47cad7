"""The entry point for pytest: options, marks, fixtures.

Every session of a user who has bluebridge installed loads this module, so it imports nothing but
pytest: the lab is imported with the first fixture or mark that needs it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bluebridge.host_tools.lab.pair import Pair
    from bluebridge.host_tools.machine.vm import Vm
    from bluebridge.host_tools.pytest_plugin.buslog import BusLog
    from bluebridge.host_tools.pytest_plugin.lab import Lab
    from bluebridge.host_tools.pytest_plugin.peer import Faults, PeerLab, Wire

_LAB = pytest.StashKey["Lab"]()
_KEEP = ("always", "failed", "never")
_MARKS = (
    "cold_boot: the guests of `pair` boot from power-on instead of a snapshot",
    'devices(*names, vfio=True): devices in each guest of `pair`: "hca" (the default), or () for '
    "bare guests; vfio=False leaves the HCA without a driver",
    'hosts(*names): sides of `pair` without a guest, such as "b": `pair.b.hca` is its HCA here',
    "machine(cpus=2, memory_mib=1024, hugepages=64): size of the guests of `pair`",
    "shared_pair: the tests of this module use one `pair`, one after the other",
    "may_crash: a guest or the device server may end in this test without failing it",
)


# Settings.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and two settings."""
    parser.getgroup("bluebridge").addoption(
        "--bluebridge-keep",
        choices=_KEEP,
        help="scratch folders to keep: always, failed (default: those of failed tests), never",
    )
    group = parser.getgroup("bluebridge")
    group.addoption(
        "--bluebridge-atlas",
        metavar="PATTERN",
        help="instead of tests, run the program behind -- in guest a under each fault whose name "
        "matches; {peer} in its words is guest b's address",
    )
    group.addoption(
        "--bluebridge-atlas-server",
        metavar="LINE",
        default="",
        help="the shell line of the program's other side, in guest b",
    )
    group.addoption(
        "--bluebridge-peer",
        metavar="SPEC",
        help="where `peer_lab` starts a second lab, as execnet writes it: "
        "ssh=HOST//python=/opt/bluebridge/bin/python",
    )
    group.addoption(
        "--bluebridge-hosts",
        metavar="OWN:PORT,OTHER:PORT",
        help="the addresses of this host and of that one on the wire between the labs",
    )
    group.addoption(
        "--bluebridge-kernel",
        metavar="KERNEL[,KERNEL...]",
        help="run each test that uses a lab under each of these kernels: names of `bluebridge "
        "kernel list`, such as 6.1 or my, or images",
    )
    parser.addini("bluebridge_keep", "scratch folders to keep: always, failed or never", "string")
    parser.addini(
        "bluebridge_scratch",
        "folder for scratch folders, relative to the root (default: among pytest's own)",
        "string",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks; refuse a wrong setting."""
    for line in _MARKS:
        config.addinivalue_line("markers", line)
    setting = config.getini("bluebridge_keep")
    if setting and setting not in _KEEP:
        raise pytest.UsageError(f"bluebridge_keep = {setting}: use one of {', '.join(_KEEP)}")
    if config.getoption("--bluebridge-kernel"):
        from bluebridge.host_tools.pytest_plugin import kernels

        kernels.configure(config)
    if config.getoption("--bluebridge-atlas") is not None:
        from bluebridge.host_tools.pytest_plugin import atlas

        atlas.configure(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have a test that uses a lab run under each kernel that was asked for."""
    named = metafunc.config.getoption("--bluebridge-kernel")
    if named and "bluebridge_kernel" in metafunc.fixturenames:
        # Of a session: all tests run under one kernel before the first runs under the next.
        names = named.split(",")
        metafunc.parametrize("bluebridge_kernel", names, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse marks that make no sense before anything starts."""
    ours = [item for item in items if {"lab", "pair"} & set(getattr(item, "fixturenames", ()))]
    if not ours:
        return
    from bluebridge.host_tools.errors import UsageError
    from bluebridge.host_tools.pytest_plugin import marks

    wrong = []
    for item in ours:
        try:
            marks.check(item, getattr(item, "fixturenames", ()))
        except UsageError as error:
            wrong.append(str(error))
    if wrong:
        raise pytest.UsageError(*wrong)


# Fixtures.


@pytest.fixture(scope="session")
def bluebridge_kernel(request: pytest.FixtureRequest) -> str:
    """The kernel of `--bluebridge-kernel` that guests have; empty without that option."""
    return getattr(request, "param", "")


@pytest.fixture(scope="session")
def lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bluebridge_kernel: str
) -> Iterator[Lab]:
    """Makes pairs of guests: `with lab.pair(cold=True) as pair`. Everything ends with it."""
    from bluebridge.host_tools.pytest_plugin.session import open_lab

    with open_lab(request.config, tmp_path_factory, bluebridge_kernel) as opened:
        request.config.stash[_LAB] = opened
        yield opened


@pytest.fixture
def pair(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Pair]:
    """Two guests that are up, `pair.a` and `pair.b`, as the test's marks ask for them."""
    yield lab.lend(request.node)
    lab.take_back(request.node)


@pytest.fixture
def faults(pair: Pair) -> Faults:
    """The faults of `bluebridge fault list` by name: `with faults.hung_wr(qpn=0x49):`."""
    from bluebridge.host_tools.pytest_plugin.peer import Faults

    return Faults(pair.hardware)


@pytest.fixture
def wire(pair: Pair) -> Wire:
    """Faults of packets on guest a's link: `with wire.drop(message=3, psn="+4") as rule:`."""
    from bluebridge.host_tools.pytest_plugin.peer import Wire

    return Wire(pair.hardware)


@pytest.fixture
def peer_lab(request: pytest.FixtureRequest, lab: Lab) -> Iterator[PeerLab]:
    """Two labs on two hosts: `peer_lab.pair` here, `peer_lab.run("a", "uname -a")` there."""
    from bluebridge.host_tools.pytest_plugin import peer

    with peer.peer_lab(request.config, lab) as joined:
        yield joined


@pytest.fixture
def guest_a(pair: Pair) -> Vm:
    """The first guest: `guest_a.run("lspci")` returns its output or raises with all of it."""
    return pair.a


@pytest.fixture
def guest_b(pair: Pair) -> Vm:
    """The second guest, with the methods of `guest_a`."""
    return pair.b


@pytest.fixture
def buslog(pair: Pair, lab: Lab) -> BusLog:
    """The bus log of this test's pair: decoded records, and `wait_for` one of them."""
    return lab.buslog(pair)


@pytest.fixture
def scratch(request: pytest.FixtureRequest, lab: Lab) -> Path:
    """The test's scratch folder, kept if it fails: consoles, logs, bus log, and what you put in."""
    if "pair" in request.fixturenames:
        logs: Path = request.getfixturevalue("pair").logs
        return logs
    return lab.scratch(request.node.nodeid)


# Watching the tests. Without a lab each of these is one look into the stash.


def _lab(item: pytest.Item) -> Lab | None:
    return item.config.stash.get(_LAB, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell the lab that a test begins."""
    if (lab := _lab(item)) is not None:
        lab.begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test during which a guest panicked, even if the test did not notice."""
    result = yield
    if (lab := _lab(item)) is not None:
        lab.check(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """End the pair that a module's tests shared, after the last of them."""
    try:
        return (yield)
    finally:
        if (lab := _lab(item)) is not None:
            lab.leave_module(item, nextitem)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the lab knows to the report of a failure; judge the scratch folders at the end."""
    lab = _lab(item)
    if lab is None:
        return (yield)
    from bluebridge.host_tools.pytest_plugin import session

    return (yield from session.report(lab, item, call))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Judge the scratch folders of tests that were interrupted, once all fixtures have ended."""
    if (lab := session.config.stash.get(_LAB, None)) is not None:
        lab.base.close()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the scratch folders that were kept, and the warnings of the lab."""
    if config.getoption("--bluebridge-kernel"):
        from bluebridge.host_tools.pytest_plugin import kernels

        kernels.summarise(terminalreporter)
    lab = config.stash.get(_LAB, None)
    if lab is None or not (lab.base.kept or lab.warnings):
        return
    terminalreporter.section("bluebridge")
    for line in lab.warnings:
        terminalreporter.write_line(f"warning: {line}")
    for path in lab.base.kept:
        terminalreporter.write_line(f"kept: {path}")
