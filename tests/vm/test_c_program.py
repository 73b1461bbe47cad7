"""docs/c-program.md: its program is built, copied and run by the commands of the page."""

from __future__ import annotations

import re
from pathlib import Path

from tests.models.lab_commands import ROOT, Commands

PAGE = (ROOT / "docs/c-program.md").read_text(encoding="utf-8")
PROGRAM = PAGE.partition("```c\n")[2].partition("```")[0]
COMMANDS = re.findall(r"^    (bluebridge .+)$", PAGE, re.M)
SHOWN = re.findall(r"^    (mlx4_0 .+|success: .+)$", PAGE, re.M)


def test_the_program_of_the_page_meets_itself(bluebridge: Commands, tmp_path: Path) -> None:
    (tmp_path / "hello.c").write_text(PROGRAM)
    asks = COMMANDS.index("bluebridge run b -- ibv_devinfo -v")
    script = [*COMMANDS[:asks], "wait", *COMMANDS[asks:]]
    said = bluebridge.shell("\n".join(script), tmp_path)
    assert len(SHOWN) == 2
    for line in (*SHOWN, "mlx4_0 port 1 GID ::ffff:10.9.0.1"):
        assert line in said.splitlines()
    assert re.search(r"GID\[ *\d+\]:\s+::ffff:10\.9\.0\.2, RoCE v2", said)


def test_errors_are_the_compiler_s_and_one_line(bluebridge: Commands, tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text('#include "answer.h"\nint main(void) { return ANSWER; }\n')
    failed = "bluebridge cc bad.c 2>&1 || echo status $?"
    *compiler, last, status = bluebridge.shell(failed, tmp_path).splitlines()
    assert last.startswith("bluebridge: bad.c does not build: bad.c:1:10: fatal error: answer.h")
    assert any("compilation terminated" in line for line in compiler)
    assert status == "status 1"
    (tmp_path / "answer.h").write_text("#define ANSWER X\n")
    assert (
        bluebridge.shell("bluebridge cc bad.c -- -DX=42; ./bad || echo $?", tmp_path) == "bad\n42\n"
    )
