"""What a kernel that checks itself reports fails a test like an assertion: KASAN and lockdep."""

from __future__ import annotations

import re

import pytest

from bluebridge.host_tools import cli
from bluebridge.host_tools.lab.software import KERNEL_VARIABLE, MODULES_VARIABLE
from bluebridge.images.artefacts import Artefacts
from tests.models.plugin_project import Project
from tests.vm.conftest import BOOT_SECONDS

pytestmark = pytest.mark.timeout(3 * BOOT_SECONDS)

KASAN = """\
==================================================================
BUG: KASAN: slab-use-after-free in planted_init+0x7a/0x1000 [planted]
Write of size 8 at addr ffff888004d1c900 by task insmod/211

Call Trace:
 <TASK>
 planted_init+0x7a/0x1000 [planted]
 </TASK>

Freed by task 211:
 kfree+0xd6/0x290
=================================================================="""
LOCKDEP = """\
============================================
WARNING: possible recursive locking detected
6.12.117 #1 Not tainted
--------------------------------------------
insmod/212 is trying to acquire lock:"""

PRINTS = """\
#include <linux/module.h>
static char *what = "";
module_param(what, charp, 0);
static int __init planted_init(void)
{
    if (!strcmp(what, "kasan")) {
KASAN
    } else {
LOCKDEP
    }
    return 0;
}
static void __exit planted_exit(void) { }
module_init(planted_init);
module_exit(planted_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("prints what a kernel that checks itself would report");
"""

THREE_TESTS = """
from pathlib import Path
import pytest

pytestmark = pytest.mark.devices()
MODULE = Path("out/planted.ko")

def load(guest, what):
    guest.run(["insmod", guest.agent.put(MODULE, "/tmp/"), f"what={what}"])

def test_memory(guest_b):
    load(guest_b, "kasan")

def test_locks(guest_a):
    load(guest_a, "lockdep")

def test_neither(guest_a, guest_b):
    assert guest_a.run("hostname").text + guest_b.run("hostname").text == "ab"
"""


def printing(level: str, text: str) -> str:
    """Lines of C that print `text` with `pr_LEVEL`."""
    return "\n".join(f'        pr_{level}("{line}\\n");' for line in text.splitlines())


def planted(project: Project, source: str, *words: str) -> None:
    """Build a module `planted` from a source text, into the folder `out` of a project."""
    folder = project.folder / "planted"
    folder.mkdir()
    (folder / "planted.c").write_text(source)
    (folder / "Kbuild").write_text("obj-m := planted.o\n")
    assert cli.main(["kmod", str(folder), "-o", str(project.folder / "out"), *words]) == 0


@pytest.mark.brief
@pytest.mark.timeout(2 * BOOT_SECONDS)
def test_reports_in_the_kernels_log_fail_their_tests(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's kernel, taken for one of the user's, prints them from a module."""
    root = Artefacts().folder("kernel") / "root"
    (image,) = root.glob("boot/vmlinuz-*")
    monkeypatch.setenv(KERNEL_VARIABLE, str(image))
    monkeypatch.setenv(MODULES_VARIABLE, str(root))
    lines = {"KASAN": printing("err", KASAN), "LOCKDEP": printing("warn", LOCKDEP)}
    planted(project, re.sub("^(KASAN|LOCKDEP)$", lambda word: lines[word[1]], PRINTS, flags=re.M),
            "--kernel", "debian-13")  # fmt: skip
    project.write("test_mine.py", THREE_TESTS)
    said = project.run()
    outcomes = {"test_memory": "failure", "test_locks": "failure", "test_neither": "passed"}
    assert project.outcomes() == outcomes, said
    memory, locks = project.text("test_memory"), project.text("test_locks")
    assert re.search("guest b: .*BUG: KASAN: slab-use-after-free in planted_init", memory), memory
    assert "Freed by task 211:" in memory
    assert "guest a: WARNING: possible recursive locking detected" in locks, locks
    assert "insmod/212 is trying to acquire lock:" in locks
