"""Lines of the source behind the frames of a kernel that was built here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.images import kernel_build, kernel_tree, sandbox, stack_lines
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.sandbox import Bind, Launcher

RELEASE = "6.99.1-my"
MAP = """\
ffffffff81000000 T _text
ffffffff81000010 T kfree
ffffffff810000f0 t show
ffffffff81000100 t helper
ffffffff81000200 t show
ffffffff81000280 D data
"""
NM = """\
Symbols from /work/modules/planted.ko:

Name                  Value           Class        Type         Size             Line  Section

planted_init        |0000000000000010|   t  |              FUNC|000000000000007a|     |.init.text
planted_use         |0000000000000040|   t  |              FUNC|0000000000000020|     |.text
kfree               |                |   U  |            NOTYPE|                |     |*UND*
"""
OOPS = f"""\
BUG: KASAN: slab-use-after-free in planted_use+0x8/0x20 [planted]
CPU: 0 UID: 0 PID: 59 Comm: insmod Tainted: G           O       {RELEASE} #1
RIP: 0010:show+0x4/0x80
 kfree+0x11/0xe0
 show+0x5/0x10
 show+0x5/0x99
 planted_init+0x7/0x1000 [planted]
 planted_use+0x8/0x20 [planted]
 other+0x7/0x10 [elsewhere]
"""
LINES = {
    ("/work/build/vmlinux", "", "0xffffffff81000204"): ["/source/lib/show.c:7"],
    ("/work/build/vmlinux", "", "0xffffffff81000020"): [
        "/source/include/slab.h:3 (discriminator 4)",
        "/source/mm/slub.c:12",
    ],
    ("/work/build/vmlinux", "", "0xffffffff810000f4"): ["??:?"],
    ("/work/modules/planted.ko", ".init.text", "0x16"): ["/home/me/planted/planted.c:21"],
    ("/work/modules/planted.ko", ".text", "0x47"): ["/home/me/planted/planted.c:9"],
}


def addr2line(words: list[str]) -> str:
    """Return the output for addresses of one section; an unknown one fails the test."""
    at = words.index("-e")
    file, rest = words[at + 1], words[at + 2 :]
    section = rest[1] if rest[0] == "-j" else ""
    addresses = rest[2:] if section else rest
    told = []
    for address in addresses:
        told += [f"0x{int(address, 16):016x}", *LINES[file, section, address]]
    return "\n".join(told) + "\n"


@pytest.fixture
def artefacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artefacts:
    """A cache with a kernel of the user's, and the two programs that read its files."""
    folder, work = tmp_path / "built-kernel-1", tmp_path / "kernel-tree-1"
    for made in (folder / "lib/modules" / RELEASE, work / "build", work / kernel_tree.MODULES):
        made.mkdir(parents=True)
    (tmp_path / kernel_build.MY).symlink_to(folder.name)
    (folder / "System.map").write_text(MAP)
    (work / kernel_tree.MODULES / "planted.ko").touch()
    kernel_tree.note(folder, tmp_path, work / "build")

    def run(_: Launcher, __: Path, ___: Path, command: list[str], binds: list[Bind]) -> object:
        assert binds == [Bind(work, "work")], "and not writable"
        return True, NM if command[0] == "nm" else addr2line(command)

    monkeypatch.setattr(sandbox, "run", run)
    monkeypatch.setattr(sandbox, "choose_launcher", lambda: None)
    monkeypatch.setattr(Artefacts, "built", lambda *_: tmp_path)
    return Artefacts(tmp_path)


def test_frames_get_the_lines_of_their_source(artefacts: Artefacts) -> None:
    told = stack_lines.with_lines(OOPS, artefacts).splitlines()
    added = [
        line.removeprefix(before) for line, before in zip(told, OOPS.splitlines(), strict=True)
    ]
    assert added == [
        " (/home/me/planted/planted.c:9)",
        "",
        " (lib/show.c:7)",  # the second `show`, by its size, and the instruction itself
        " (include/slab.h:3, mm/slub.c:12)",
        "",  # its file has no line
        "",  # no `show` is that long
        " (/home/me/planted/planted.c:21)",
        " (/home/me/planted/planted.c:9)",
        "",  # a module that is not here
    ]


def test_a_kernel_that_is_not_here_leaves_the_text(artefacts: Artefacts, tmp_path: Path) -> None:
    other = OOPS.replace(RELEASE, "6.99.1-my-debug")
    assert stack_lines.with_lines(other, artefacts) == other
    (tmp_path / "kernel-tree-1/build").rmdir()
    assert stack_lines.with_lines(OOPS, artefacts) == OOPS
