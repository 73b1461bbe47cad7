"""Faults by name in tests, and a session that runs a program under each of them."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.host_tools.lab.hardware import Hardware
from bluebridge.host_tools.pytest_plugin.peer import Faults, Wire

pytest_plugins = ["pytester"]


@pytest.fixture
def lines() -> list[str]:
    """Return what the server was told."""
    return []


@pytest.fixture
def named(lines: list[str]) -> Faults:
    """Faults of a server that arms all as number 7."""

    def tell(line: str) -> list[str]:
        lines.append(line)
        return ["7"] if line.startswith(("arm ", "hold ", "drop ")) and "event" not in line else []

    return Faults(Hardware(tell))


def test_a_fault_ends_with_its_block_even_if_that_fails(named: Faults, lines: list[str]) -> None:
    with pytest.raises(KeyError), named.hung_wr(qpn=0x49):
        raise KeyError
    with named.of("b").reg_mr_fails(nth=2), named.event_qp_fatal(qpn=3):
        pass
    assert lines == [
        "arm a hung-wr qpn=73", "disarm a 7", "arm b reg-mr-fails nth=2",
        "arm a event-qp-fatal qpn=3", "disarm b 7",
    ]  # fmt: skip


def test_rules_of_the_wire_are_those_of_a_link(named: Faults, lines: list[str]) -> None:
    wire = Wire(named._hardware)
    with wire.hold(opcode="ACK", count=1) as rule, wire.of("b").drop(psn="+4"):
        rule.release()
    assert lines[:3] == ["hold a opcode=ACK count=1", "drop b psn=+4", "release 7"]


def test_all_faults_are_methods_and_others_are_not(named: Faults) -> None:
    assert len(dir(named)) == len(BY_NAME) + 1
    assert all(callable(getattr(named, name)) for name in dir(named))
    with pytest.raises(AttributeError, match="did you mean hung_wr"):
        named.hang_wr()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--bluebridge-atlas", "hung-wr"], "name a program behind --"),
        (["--bluebridge-atlas", "frob", "--", "true"], "is called 'frob'"),
    ],
)
def test_bad_input_is_one_line(pytester: pytest.Pytester, words: list[str], wanted: str) -> None:
    result = pytester.runpytest(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.stderr.lines if wanted in line]


def test_each_fault_is_a_test_and_no_other_is_collected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_of_the_user(): pass\n")
    words = ("--collect-only", "-q", "--bluebridge-atlas", "wc-rem-*", "--", "my_program", "{peer}")
    result = pytester.runpytest_subprocess(*words)
    names = [name for name in BY_NAME if name.startswith("wc-rem-")]
    found = [line for line in result.outlines if "::" in line]
    assert [line.rpartition("[")[2] for line in found] == [f"{name}]" for name in names]
