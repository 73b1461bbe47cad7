"""`kernel build` with a source that takes a moment: what kbuild is told, what is built anew.

Kernels of Linux take far longer than all other tests together; tests/vm/test_checked_kernel.py
starts guests with those that were built on this machine.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bluebridge.images import kernel_build, kernel_tree
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import Cache
from bluebridge.images.kmod import BuildFailed
from bluebridge.images.recipes.kernel_source import KernelToolsRecipe
from bluebridge.images.report import ImageError

pytestmark = pytest.mark.full

MAKEFILE = """\
version = $(shell sed -n 's/^CONFIG_LOCALVERSION="\\(.*\\)"/\\1/p' $(O)/.config)
allnoconfig:
\tcp $(KCONFIG_ALLCONFIG) $(O)/.config
olddefconfig:
\tgrep -q LOCALVERSION $(O)/.config
bzImage:
\tmkdir -p $(O)/arch/x86/boot
\tgcc -c -o $(O)/arch/x86/boot/bzImage kernel.c
\ttouch $(O)/System.map $(O)/source
\techo built >> $(O)/count
modules:
modules_install:
\tmkdir -p $(INSTALL_MOD_PATH)/lib/modules/1.0$(version)/kernel
\techo module > $(INSTALL_MOD_PATH)/lib/modules/1.0$(version)/kernel/a.ko
.PHONY: bzImage modules
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A clean checkout of what looks like a kernel's tree."""
    folder = tmp_path / "linux"
    (folder / "arch/x86").mkdir(parents=True)
    (folder / "arch/x86/Kconfig").touch()
    files = {"Makefile": MAKEFILE, "kernel.c": "int one;\n", "Kbuild": "", "Kconfig": ""}
    for name, text in files.items():
        (folder / name).write_text(text)
    git = ("git", "-C", str(folder), "-c", "user.name=me", "-c", "user.email=me@example.org")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "one")):
        subprocess.run([*git, *words], check=True)
    return folder


@pytest.fixture
def tools() -> KernelToolsRecipe:
    """The compiler and its companions, of the cache that all tests share."""
    artefacts = Artefacts()
    tools = KernelToolsRecipe(artefacts.cache, artefacts.packages)
    artefacts.built(tools)
    return tools


def builds(kernel: Path) -> int:
    """How often the compiler ran for the tree of that kernel."""
    return (kernel_tree.place(kernel) / "build/count").read_text().count("built")


def test_only_what_changed_is_built_anew(
    source: Path, tools: KernelToolsRecipe, tmp_path: Path
) -> None:
    cache = Cache(tmp_path / "cache")
    first = kernel_build.build(source, False, cache, tools)
    assert (first / "lib/modules/1.0-my/kernel/a.ko").is_file()
    assert kernel_build.built(cache, debug=False) == first and builds(first) == 1
    assert kernel_build.build(source, False, cache, tools) == first and builds(first) == 1
    (source / "kernel.c").write_text("int one, two;\n")
    changed = kernel_build.build(source, False, cache, tools)
    assert changed != first and builds(changed) == 2
    assert kernel_build.built(cache, debug=False) == changed
    subprocess.run(["git", "-C", source, "checkout", "-q", "."], check=True)
    assert kernel_build.build(source, False, cache, tools) == first and builds(first) == 2
    assert {path.name for path in source.iterdir()} == {
        *(".git", "Kbuild", "Kconfig", "Makefile", "arch", "kernel.c")
    }, "the build wrote nothing there"


def test_a_kernel_that_checks_itself_is_another_one(
    source: Path, tools: KernelToolsRecipe, tmp_path: Path
) -> None:
    cache = Cache(tmp_path / "cache")
    usual, checked = (kernel_build.build(source, debug, cache, tools) for debug in (False, True))
    assert kernel_build.built(cache, debug=True) == checked != usual
    # Its modules do not load into the other one.
    assert (checked / "lib/modules/1.0-my-debug").is_dir()
    assert "CONFIG_KASAN=y" in (checked / "config").read_text()
    assert "CONFIG_KASAN=y" not in (usual / "config").read_text()


def test_a_kernel_of_an_earlier_version_is_none(tmp_path: Path) -> None:
    """Its release is that of any kernel of this source, so modules of another one would load."""
    (tmp_path / "my-debug/lib/modules/1.0").mkdir(parents=True)
    assert kernel_build.built(Cache(tmp_path), debug=True) is None
    (tmp_path / "my-debug/lib/modules/1.0").rename(tmp_path / "my-debug/lib/modules/1.0-my-debug")
    assert kernel_build.built(Cache(tmp_path), debug=True) == tmp_path / "my-debug"


def test_what_does_not_build_is_a_line_with_the_compilers_reason(
    source: Path, tools: KernelToolsRecipe, tmp_path: Path
) -> None:
    cache = Cache(tmp_path / "cache")
    (source / "kernel.c").write_text("int one = ;\n")
    with pytest.raises(BuildFailed, match=r"linux does not build: kernel\.c:1:11: error: ") as told:
        kernel_build.build(source, False, cache, tools)
    log = Path(told.value.mend.removeprefix("see the compiler's output in "))
    assert "kernel.c:1:11: error:" in log.read_text()
    assert kernel_build.built(cache, debug=False) is None


def test_a_tree_that_was_built_inside_is_refused(
    source: Path, tools: KernelToolsRecipe, tmp_path: Path
) -> None:
    (source / ".config").touch()
    with pytest.raises(ImageError, match=r"was built inside .*mrproper"):
        kernel_build.build(source, False, Cache(tmp_path / "cache"), tools)
