"""Reports of KASAN and lockdep fail a test like an assertion: of kernels that check themselves."""

from __future__ import annotations

import re

import pytest

from bluebridge.host_tools import cli
from bluebridge.host_tools.lab.software import KERNEL_VARIABLE, MODULES_VARIABLE
from bluebridge.images import kernel_build
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

PLANTED = """\
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
static char *what = "";
module_param(what, charp, 0);
static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static noinline void use_after_free(void)
{
    long *memory = kmalloc(64, GFP_KERNEL);
    kfree(memory);
    WRITE_ONCE(*memory, 1);
}
static noinline void locks_in_a_circle(void)
{
    mutex_lock(&first);
    mutex_lock(&second);
    mutex_unlock(&second);
    mutex_unlock(&first);
    mutex_lock(&second);
    mutex_lock(&first);
    mutex_unlock(&first);
    mutex_unlock(&second);
}
static int __init planted_init(void)
{
    if (!strcmp(what, "kasan"))
        use_after_free();
    else
        locks_in_a_circle();
    return 0;
}
static void __exit planted_exit(void) { }
module_init(planted_init);
module_exit(planted_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("has two defects");
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


@pytest.mark.full
def test_defects_of_a_module_fail_their_tests_under_a_debug_kernel(project: Project) -> None:
    """The kernel is the one that was built here; `make conformance` builds it."""
    if kernel_build.built(Artefacts().cache, debug=True) is None:
        pytest.skip("no debug kernel; `bluebridge kernel build debian-13 --debug` builds it")
    planted(project, PLANTED, "--kernel", "my-debug")
    project.write("test_mine.py", THREE_TESTS)
    said = project.run("--bluebridge-kernel", "my-debug")
    memory, locks, neither = (f"test_{each}[my-debug]" for each in ("memory", "locks", "neither"))
    outcomes = {memory: "failure", locks: "failure", neither: "passed"}
    assert project.outcomes() == outcomes, said
    assert "\nmy-debug: 1 passed, 2 failed\n" in said
    found = project.text(memory)
    assert re.search("guest b: .*BUG: KASAN: slab-use-after-free in use_after_free", found), found
    line = PLANTED[: PLANTED.index("WRITE_ONCE")].count("\n") + 1
    assert re.search(rf" use_after_free\+\S+ \[planted\] \(\S*/planted\.c:{line}\)\n", found), found
    assert re.search(r" do_init_module\+\S+ \(kernel/module/main\.c:\d+\)\n", found), found
    (dmesg,) = project.kept()["test_mine-test_memory-my-debug"].glob("dmesg-b.txt")
    freed = dmesg.read_text().partition("Freed by task")[2]
    assert re.search(r" kfree\+\S+ \(\S.*mm/slub\.c:\d+\)\n", freed), freed
    found = project.text(locks)
    assert "guest a: WARNING: possible circular locking dependency detected" in found, found
    assert re.search(r" locks_in_a_circle\+\S+ \[planted\] \(\S*/planted\.c:\d+\)\n", found), found


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_a_debug_kernel_is_built_from_debians_source() -> None:
    assert cli.main(["kernel", "build", "debian-13", "--debug"]) == 0
    folder = kernel_build.built(Artefacts().cache, debug=True)
    assert folder is not None and "CONFIG_KASAN=y\n" in (folder / "config").read_text()
