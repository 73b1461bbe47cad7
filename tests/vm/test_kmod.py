"""`bluebridge kmod` with the real headers and compiler; what it builds loads in a guest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bluebridge.host_tools import cli
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.recipes.module_build import KbuildRecipe
from tests.unit.images.test_kmod import state

BASE = """\
#include <linux/module.h>
int bluebridge_answer(void);
int bluebridge_answer(void) { return 42; }
EXPORT_SYMBOL_GPL(bluebridge_answer);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("exports an answer");
"""
ASKING = """\
#include <linux/module.h>
#include "answer.h"
static int __init hello_init(void)
{
    pr_info("bluebridge hello: %d %d\\n", bluebridge_answer(), WORD);
    return 0;
}
static void __exit hello_exit(void) { }
module_init(hello_init);
module_exit(hello_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("asks for it");
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders of modules, the second using a header and a symbol of the first."""
    for name, text in (("base", BASE), ("my hello", ASKING)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.c").write_text(text)
    (tmp_path / "base" / "answer.h").write_text("int bluebridge_answer(void);\n")
    (tmp_path / "base" / "Kbuild").write_text("obj-m := bb_base.o\nbb_base-y := main.o\n")
    makefile = "obj-$(CONFIG_HELLO) := bb_hello.o\nbb_hello-y := main.o\n"
    (tmp_path / "my hello" / "Makefile").write_text(makefile)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kmod(*words: str) -> int:
    return cli.main(["kmod", *words])


def build_both(sources: Path) -> None:
    assert kmod("base", "-o", "out") == 0
    words = ["my hello", "-o", "out", "--symvers", "out/base.symvers", "--with", "base"]
    arguments = ["CONFIG_HELLO=m", f"KCFLAGS=-DWORD=7 -I{sources / 'base'}"]
    assert kmod(*words, "--", *arguments) == 0


@pytest.mark.brief
@pytest.mark.devices()
def test_modules_load_in_a_guest(
    sources: Path, guest_a: Vm, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(sources)
    build_both(sources)
    _sources_are_as_they_were(sources, before)
    release = Artefacts().for_kernel(KbuildRecipe).kernel.release()
    printed = capsys.readouterr().out
    assert printed.count(f"  vermagic: {release} SMP") == 2
    assert "out/bb_hello.ko" in printed and "  depends:  bb_base\n" in printed
    for name in ("bb_base", "bb_hello"):
        guest_a.run(["insmod", guest_a.agent.put(Path("out") / f"{name}.ko", "/tmp/")])
    assert "bluebridge hello: 42 7" in guest_a.run("dmesg").text
    guest_a.run("rmmod bb_hello bb_base")


def _sources_are_as_they_were(sources: Path, before: dict[str, Any]) -> None:
    after = state(sources)
    out = str(sources / "out")
    made = {name for name in after if name.startswith(out)}
    assert {Path(name).name for name in made} == {
        "out",
        "bb_base.ko",
        "bb_hello.ko",
        "base.symvers",
    }
    del before[str(sources)], after[str(sources)]  # got the folder `out`
    assert {name: after[name] for name in after if name not in made} == before


@pytest.mark.parametrize(
    ("words", "line", "output"),
    [
        (["my hello"], "my hello built no module; set obj-m", ""),
        (["my hello", "--", "CONFIG_HELLO=m"], "answer.h: No such file", "main.c:2:10"),
        (["base", "--", "KCFLAGS=-Dint=oops"], "base does not build", "error:"),
        (["base", "--", "CC=nothing"], "base does not build", "nothing"),
    ],
)
def test_failures_show_the_compiler_and_one_line(
    sources: Path, words: list[str], line: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(sources)
    assert kmod(*words) == 1
    said = capsys.readouterr()
    *compiler, last = said.err.splitlines()
    assert last.startswith("bluebridge: ") and line in last
    assert output in "\n".join(compiler)
    assert said.out == ""
    assert state(sources) == before
