"""`up --module`: somebody's own modules in both guests, or one clear line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.lab_commands import Commands

COUNTER = """\
#include <linux/module.h>
int bluebridge_count(void);
int bluebridge_count(void) { return 42; }
EXPORT_SYMBOL_GPL(bluebridge_count);
MODULE_LICENSE("GPL");
"""
READER = """\
#include <linux/module.h>
int bluebridge_count(void);
static int __init reader_init(void)
{
    pr_info("bluebridge reader: %d\\n", bluebridge_count());
    return RESULT;
}
static void __exit reader_exit(void) { }
module_init(reader_init);
module_exit(reader_exit);
MODULE_LICENSE("GPL");
"""


@pytest.fixture(scope="module")
def bluebridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Commands with a registry of this module's own."""
    commands = Commands(tmp_path_factory.mktemp("lab"))
    yield commands
    commands.close()


@pytest.fixture(scope="module")
def modules(bluebridge: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bb-counter.ko, with bb-reader.ko that uses it, and with ones that fail."""
    folder = tmp_path_factory.mktemp("modules")
    _build(bluebridge, folder, {"bb-counter": COUNTER})
    readers = {
        "bb-reader": READER.replace("RESULT", "0"),
        "bb-broken": READER.replace("RESULT", "-ENODEV"),
    }
    _build(bluebridge, folder, readers, "--symvers", str(folder / "bb-counter.symvers"))
    # With symbol versions the kernel ignores the release; what else it was built for must agree.
    strange = _content(folder, "bb-counter").replace(b" SMP ", b" UMP ", 1)
    (folder / "bb-strange.ko").write_bytes(strange)
    return folder


def _build(bluebridge: Commands, folder: Path, sources: dict[str, str], *more: str) -> None:
    place = folder / next(iter(sources))
    place.mkdir()
    for name, source in sources.items():
        (place / f"{name}.c").write_text(source)
    objects = " ".join(f"{name}.o" for name in sources)
    (place / "Kbuild").write_text(f"obj-m := {objects}\n")
    bluebridge.good("kmod", str(place), "-o", str(folder), *more)


def _content(folder: Path, name: str) -> bytes:
    return (folder / f"{name}.ko").read_bytes()


@pytest.mark.brief
def test_modules_are_loaded_and_loaded_again(bluebridge: Commands, modules: Path) -> None:
    both = (str(modules / "bb-counter.ko"), str(modules / "bb-reader.ko"))
    bluebridge.good("up", "--bare", "--module", *both)
    for name in "ab":
        assert "bluebridge reader: 42" in bluebridge.good("run", name, "dmesg")
    bluebridge.good("restart", "b")
    assert "bb_reader" in bluebridge.good("run", "b", "lsmod")

    (modules / "bb-reader.ko").rename(modules / "away")
    completed = bluebridge.run("restart", "--quiet", "b")
    assert completed.returncode == 1 and b"bb-reader.ko: No such file" in completed.stderr
    assert "it did not restart" in bluebridge.bad("run", "b", "true")[1]
    (modules / "away").rename(modules / "bb-reader.ko")
    bluebridge.good("restart", "b")
    assert "bb_reader" in bluebridge.good("run", "b", "lsmod")
    bluebridge.good("down")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bb-strange", r"bb-strange.ko does not load: .*magic '.* UMP .*' should be '"),
        ("bb-reader", r"bb-reader.ko needs the module bb-counter, which .* give it as well"),
        ("bb-broken", r"bb-broken.ko does not load: .*No such device"),
    ],
)
def test_a_module_that_does_not_load(
    bluebridge: Commands, modules: Path, name: str, said: str
) -> None:
    words = [str(modules / f"{name}.ko")]
    if name == "bb-broken":
        words = [str(modules / "bb-counter.ko"), *words]
    status, line = bluebridge.bad("up", "--quiet", "--bare", "--module", *words)
    assert status == 1
    assert re.search(said, line), line
    bluebridge.wait_until_nothing_is_left()


def test_what_is_no_module(bluebridge: Commands, tmp_path: Path) -> None:
    (tmp_path / "text.ko").write_text("hello")
    for path, said in (
        (tmp_path / "none.ko", "none.ko: No such file or directory; `bluebridge kmod DIR`"),
        (tmp_path / "text.ko", "text.ko is no kernel module"),
        (tmp_path, "Is a directory"),
    ):
        status, line = bluebridge.bad("up", "--module", str(path))
        assert (status, said in line) == (2, True), line
