"""What the soak draws, what it makes of kernel logs, and its verdict; no guest is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.host_tools.campaigns.conformance.setups import INFINIBAND, ROCE, Setup
from bluebridge.host_tools.campaigns.soak import judge, kernel_log, page, report
from bluebridge.host_tools.campaigns.soak.__main__ import main
from bluebridge.host_tools.campaigns.soak.plan import DISTURBANCES, FAULT, KILL, Plan
from bluebridge.host_tools.campaigns.soak.rounds import Round, Rounds, Run, Stock
from bluebridge.host_tools.host_description import HostDescription

RUN = Run("roce", 99, 20, 60.2, HostDescription("a processor", 2, 24, "a system", "tcg", "today"))
LOADED = """\
<6>[   26.205532] mlx4_core 0000:01:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8)
<4>[   27.367477] mlx4_en: 0000:01:00.0: Port 1: Using 2 TX rings
<4>[   27.371366] mlx4_en: 0000:01:00.0: Port 1: Initializing port
<6>[   28.151759] mlx4_en: eth0: Link Up
<7>[   31.205160] mlx4_en: eth0: Close port called
""".splitlines()
MENDED = """\
<3>[   54.470654] mlx4_core 0000:01:00.0: Internal error detected:
<3>[   54.474031] mlx4_core 0000:01:00.0:   buf[00]: 42420001
<3>[   54.479768] mlx4_core 0000:01:00.0: device is going to be reset
<3>[   55.532218] mlx4_core 0000:01:00.0: device was reset successfully
<3>[   55.533874] mlx4_core 0000:01:00.0: command 0x49 failed: fw status = 0x1
<6>[   57.903592] mlx4_core 0000:01:00.0: mlx4_restart_one was ended, ret=0
""".splitlines()


def test_drivers_that_come_up_are_no_complaint() -> None:
    assert kernel_log.complaints(LOADED) == []


@pytest.mark.parametrize(
    "line",
    [
        "<4>[    1.000000] something nobody has heard of",
        "<6>[    1.000000] mlx4_core 0000:01:00.0: command 0x9 timed out (go bit not cleared)",
        "<30>[    1.000000] daemon: failure",
        "<0>[    1.000000] Kernel panic - not syncing",
        "BUG: unable to handle page fault",
        "<6>[    1.000000] mlx4_core 0000:01:00.0: mlx4_restart_one failed",
    ],
)
def test_warnings_and_words_of_failure_are_complaints(line: str) -> None:
    assert len(kernel_log.complaints([*LOADED, line])) == 1


def test_a_recovery_is_explained_only_where_a_fault_was_injected() -> None:
    assert kernel_log.complaints(MENDED, recovering=True) == []
    assert len(kernel_log.complaints(MENDED)) == 5


@pytest.mark.parametrize(
    "text",
    [
        "mlx4_core 0000:01:00.0: Fail to set vlan in port 1 during unregister",
        "infiniband mlx4_0: ib_query_port failed (-5)",
    ],
)
def test_some_lines_of_a_recovery_come_now_and_then(text: str) -> None:
    line = f"<4>[   55.6] {text}"
    assert kernel_log.complaints([*MENDED, line], recovering=True) == []
    assert kernel_log.complaints([*LOADED, line])


def test_a_recovery_that_does_not_end_is_a_complaint() -> None:
    (found,) = kernel_log.complaints(MENDED[:-1], recovering=True)
    assert found == "the kernel never said: was ended, ret=0"


@pytest.mark.parametrize(
    "text",
    [
        "hrtimer: interrupt took 12031154 ns",
        "workqueue: mlx4_en_do_get_stats [mlx4_en] hogged CPU for >10000us 4 times, consider",
        "clocksource: timekeeping watchdog on CPU1: wd-tsc-wd excessive read-back delay of "
        "716430ns vs. limit of 125000ns, wd-wd read-back delay only 9800ns, attempt 2, marking",
        "clocksource: Long readout interval, skipping watchdog check: cs_nsec: 1160670452",
        "TSC found unstable after boot, most likely due to broken BIOS. Use 'tsc=unstable'.",
    ],
)
def test_what_a_slow_host_causes_is_counted_and_no_complaint(text: str) -> None:
    line = f"<4>[   99.0] {text}"
    assert kernel_log.complaints([*LOADED, line]) == []
    assert kernel_log.slow_host([*LOADED, line]) == 1


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_log_can_be_judged(lines: list[str]) -> None:
    assert len(kernel_log.complaints(lines)) <= len(lines)


@pytest.mark.parametrize("setup", [ROCE, INFINIBAND], ids=lambda setup: setup.name)
def test_a_seed_decides_the_turns(setup: Setup) -> None:
    first, again, other = (
        [plan.next() for _ in range(200)] for plan in (Plan(seed, setup, 7) for seed in (1, 1, 2))
    )
    assert [turn.what for turn in first] == [turn.what for turn in again]
    assert [turn.what for turn in first] != [turn.what for turn in other]


def test_guests_are_killed_when_it_is_their_turn() -> None:
    plan = Plan(3, ROCE, 5)
    killed = [number for number in range(1, 51) if plan.next().kind == KILL.kind]
    assert killed == [5, 10, 15, 20, 25, 30, 35, 40, 45, 50]


def test_an_hour_of_turns_has_everything() -> None:
    plan = Plan(4, ROCE, 20)
    kinds = {plan.next().kind for _ in range(600)}
    assert {chosen.kind for chosen in DISTURBANCES} < kinds
    tools = {f"ib_{verb}_{mode}" for verb in ("send", "write", "read") for mode in ("bw", "lat")}
    tools |= {f"ibv_{kind}_pingpong" for kind in ("rc", "ud", "srq")}
    assert tools | {"ping", "iperf3 -t 5", "rping", KILL.kind} < kinds


def _rounds(memory: list[int], files: int = 30) -> list[Round]:
    return [
        Round(number, "ping", "ping", 1.0 + number, Stock(value, files))
        for number, value in enumerate(memory)
    ]


def test_memory_that_wavers_is_flat_and_memory_that_climbs_is_not() -> None:
    wavering = [(40 + number % 3) << 20 for number in range(40)]
    climbing = [(40 << 20) + number * (100 << 10) for number in range(40)]
    assert report.passed(_rounds(wavering))
    assert not report.passed(_rounds(climbing))
    assert "GROWS" in report.stocks(_rounds(climbing))[0]


def test_one_file_left_open_for_good_is_growth() -> None:
    done = _rounds([40 << 20] * 20) + _rounds([40 << 20] * 20, files=31)
    assert not report.passed(done)


def test_a_failure_is_not_a_pass_and_too_few_rounds_say_nothing_of_memory() -> None:
    good = Round(0, "ping", "ping", 1.0, Stock(1, 1))
    bad = Round(1, "ping", "ping", 1.0, None, ("it broke",))
    assert report.passed([good])
    assert not report.passed([good, bad])
    assert not report.passed([])
    assert "8 rounds at least" in report.stocks([good])[0]


def test_the_table_counts_by_kind() -> None:
    done = [*_rounds([1] * 3), Round(3, "cable out and in", "a", 7.0, None)]
    assert report.table(done).splitlines()[2:] == [
        "| ping | 3 | 2.0 s |",
        "| cable out and in | 1 | 7.0 s |",
    ]


def test_rounds_are_on_disk_at_once(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path / "run")
    rounds.add(Round(0, "ping", "ping: a", 1.5, Stock(2, 3), ("broke",)))
    rounds.say("a title", "a text\n\n")
    (line,) = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert json.loads(line)["stock"] == {"memory": 2, "files": 3}
    assert rounds.transcript.read_text().endswith(" a title\na text\n")
    assert [found.failures for found in rounds.failed] == [("broke",)]


def _kept(folder: Path, kind: str, lines: list[str], *failures: str) -> Path:
    """A run of one round, as it lies on the disk."""
    rounds = Rounds(folder)
    what = f"{kind}: b, under frames"
    rounds.say(f"round 0: {what}")
    rounds.say("kernel of guest a", "\n".join(LOADED))
    rounds.say("kernel of guest b", "\n".join(lines))
    rounds.add(Round(0, kind, what, 1.0, Stock(1, 1), failures))
    return folder


LATER_LISTED = "<4>[  158.0] infiniband mlx4_0: ib_query_port failed (-5)"


def test_a_run_is_judged_anew_by_todays_lists(tmp_path: Path) -> None:
    heard = "kernel of guest b: infiniband mlx4_0: ib_query_port failed (-5)"
    folder = _kept(tmp_path, FAULT, [*MENDED, LATER_LISTED], heard)
    (found,) = judge.anew(folder)
    assert found.failures == ()
    assert main(["--judge", str(folder)]) == 0


@pytest.mark.parametrize("ended", [False, True])
def test_a_whole_run_judged_anew_has_its_page(
    ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "soak.md"
    monkeypatch.setattr(page, "PAGE", written)
    folder = _kept(tmp_path, FAULT, MENDED, "kernel of guest b: bad")
    if ended:
        Rounds(folder).end(RUN)
    assert main(["--judge", str(folder)]) == 0
    assert written.exists() == ended
    assert not ended or "in 60 minutes, seed 99: **passed**" in written.read_text()


def test_judged_anew_a_line_out_of_its_place_still_counts(tmp_path: Path) -> None:
    folder = _kept(tmp_path, "cable out and in", [*LOADED, LATER_LISTED])
    (found,) = judge.anew(folder)
    assert found.failures == ("kernel of guest b: infiniband mlx4_0: ib_query_port failed (-5)",)


def test_judged_anew_a_program_that_failed_has_failed(tmp_path: Path) -> None:
    folder = _kept(tmp_path, "rping", LOADED, "failed: status 1: no route")
    (found,) = judge.anew(folder)
    assert found.failures == ("failed: status 1: no route",)
    assert main(["--judge", str(folder)]) == 1


@pytest.mark.parametrize("content", [None, "no JSON", '{"number": 1}', "[]"])
def test_what_is_no_run_cannot_be_judged(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "rounds.jsonl").write_text(content)
    assert main(["--judge", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_the_page_holds_the_verdict_and_every_excuse(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    for found in _rounds([40 << 20] * 20):
        rounds.add(found)
    rounds.say("kernel of guest a", "<4>[   99.0] hrtimer: interrupt took 12031154 ns")
    text = page.page(rounds, RUN)
    assert "20 rounds in 60 minutes, seed 99: **passed**" in text
    assert "(1 lines in" in text
    assert "| processor | a processor |" in text
    assert all(pattern in text for pattern in (*kernel_log.KNOWN, *kernel_log.RECOVERY))


@pytest.mark.parametrize(
    "words", [["--minutes", "0"], ["--minutes", "x"], ["--kill-every", "-1"], ["--setup", "token"]]
)
def test_a_wrong_command_line_starts_nothing(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err
