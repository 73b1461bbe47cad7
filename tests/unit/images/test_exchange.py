"""The cache as one file: what arrives on another machine, and files that are refused."""

from __future__ import annotations

import gzip
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bluebridge.images import __main__ as images_command
from bluebridge.images import exchange
from bluebridge.images.apt import Packages
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.exchange import FORMAT, Manifest, pack, read_manifest, unpack
from bluebridge.images.report import ImageError

HOLE = 8 << 20


@pytest.fixture(autouse=True)
def mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror with one version of everything."""

    def files(packages: Packages, request: Sequence[str], backports: bool) -> list[str]:
        return [f"{name}_1_amd64.deb" for name in request[1:]]

    monkeypatch.setattr(Packages, "_files", files)
    monkeypatch.setattr(Packages, "_newest", lambda *_: "linux-image-6.12.1+deb13-amd64")
    monkeypatch.setenv("BLUEBRIDGE_PURE", "1")


@pytest.fixture
def artefacts(tmp_path: Path) -> Artefacts:
    """A cache with a small folder for each artefact that set-up makes."""
    made = Artefacts(tmp_path / "cache")
    made.cache.root.mkdir()
    for name, recipe in made.recipes.items():
        folder = made.cache.folder(name, recipe.key())
        folder.mkdir()
        (folder / "content").write_text(name)
    return made


@pytest.fixture
def exported(artefacts: Artefacts, tmp_path: Path) -> Path:
    """The file of that cache."""
    file = tmp_path / "cache.tar.zst"
    pack(artefacts, _folders(artefacts), file)
    return file


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Artefacts]:
    """The cache of another machine, in which a refused file leaves nothing."""
    yield Artefacts(tmp_path / "other")


def _folders(artefacts: Artefacts) -> list[Path]:
    return sorted(recipe.folder() for recipe in artefacts.recipes.values())


def test_another_machine_has_what_the_first_had(
    artefacts: Artefacts, exported: Path, empty: Artefacts
) -> None:
    """Every artefact is found there, without asking a mirror."""
    assert unpack(empty, exported) == []
    for name in artefacts.recipes:
        found = empty.present(name)
        assert found is not None and (found / "content").read_text() == name
    assert list(empty.cache.root.glob(".i*/")) == []


def test_the_command_that_needs_no_environment_takes_it_over(
    exported: Path, empty: Artefacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ci/set-up` runs it while pip is still installing."""
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(empty.cache.root))
    assert images_command.main(["import", str(exported)]) == 0
    assert empty.present("kernel") is not None
    exported.write_bytes(b"damaged")
    assert images_command.main(["import", str(exported)]) == 1


def test_holes_stay_holes(artefacts: Artefacts, tmp_path: Path, empty: Artefacts) -> None:
    """A snapshot takes no more of the disk than it did."""
    folder = artefacts.cache.folder("snapshot-2c1024m", "0" * 16)
    folder.mkdir()
    with (folder / "state").open("wb") as state:
        state.truncate(HOLE)
        state.write(b"x" * 4096)
    pack(artefacts, [*_folders(artefacts), folder], tmp_path / "file")
    unpack(empty, tmp_path / "file")
    taken = (empty.cache.root / folder.name / "state").stat()
    assert taken.st_size == HOLE
    assert taken.st_blocks * 512 < HOLE // 2


def test_what_is_there_stays(artefacts: Artefacts, exported: Path) -> None:
    """A pair may run from it."""
    kernel = artefacts.recipes["kernel"].folder() / "content"
    kernel.write_text("in use")
    unpack(artefacts, exported)
    assert kernel.read_text() == "in use"


def test_what_came_stays_while_others_build(
    artefacts: Artefacts, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other checkouts on this machine share the cache; the file's parts are older than theirs."""
    empty = Artefacts(tmp_path / "other")
    unpack(empty, exported)
    (tmp_path / "checkout").mkdir()
    monkeypatch.setattr("bluebridge.images.cache.HOME", tmp_path / "checkout")
    for digit in "123":
        empty.cache.ensure("kernel", digit * 16, lambda folder: None)
    assert empty.present("kernel") is not None


def test_a_library_of_an_earlier_release_is_used(
    exported: Path, empty: Artefacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A C library runs what was linked with an earlier one, so no compiler is needed."""
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "9.9"))
    assert unpack(empty, exported) == []
    found = empty.present("libvfio-user")
    assert found is not None and (found / "content").read_text() == "libvfio-user"


def test_a_library_of_a_later_release_is_noted(
    exported: Path, empty: Artefacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built again, for which the note names what lacks, and all else is used."""
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.9"))
    monkeypatch.setattr("shutil.which", lambda name: None if name == "gcc" else f"/bin/{name}")
    (note,) = unpack(empty, exported)
    assert "libvfio-user is linked with glibc 2." in note and "which is newer" in note
    assert "apt-get install -y --no-install-recommends gcc" in note
    assert empty.present("kernel") is not None and empty.present("libvfio-user") is None
    with pytest.raises(
        ImageError, match=r"there is no compiler for it; to mend it: .* gcc"
    ) as told:
        empty.libvfio_user()
    assert "\n" not in str(told.value)


def test_another_python_is_noted(
    artefacts: Artefacts, exported: Path, empty: Artefacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device server runs interpreted there, and somebody may wonder why it is slow."""
    monkeypatch.delenv("BLUEBRIDGE_PURE")
    (note,) = unpack(empty, exported)
    assert note.startswith("the file has no compiled modules; under this Python the device server")
    compiled = artefacts.cache.folder("compiled-device", "0" * 16)
    compiled.mkdir()
    monkeypatch.setattr("bluebridge.hot_modules.DEVICE.key", lambda: "0" * 16)
    pack(artefacts, [*_folders(artefacts), compiled], exported)
    assert unpack(empty, exported) == []
    monkeypatch.setattr("bluebridge.hot_modules.DEVICE.key", lambda: "1" * 16)
    (note,) = unpack(empty, exported)
    assert note.startswith("the file has compiled modules for Python 3."), note


def test_a_machine_without_zstd_is_told(
    exported: Path, empty: Artefacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(ImageError, match=r"there is no zstd here; to mend it: .*install -y zstd"):
        unpack(empty, exported)


def test_the_exported_file_is_whole_or_absent(artefacts: Artefacts, tmp_path: Path) -> None:
    """A failed export leaves neither the file nor a part of it."""
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(ImageError, match="writing"):
        pack(artefacts, [artefacts.cache.root / "kernel-gone"], place / "file")
    assert list(place.iterdir()) == []


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _deep(content: bytes) -> bytes:
    """Return a file whose first frame is too deep for a parser."""
    return struct.pack("<II", 0x184D2A50, 1 << 18) + b"[" * (1 << 18)


def _flipped(content: bytes) -> bytes:
    middle = len(content) * 3 // 4
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [_cut, _flipped, lambda content: content[:-1], lambda _: b"", lambda _: b"no archive", _deep],
    ids=["cut", "flipped", "cut-digest", "empty", "text", "deep"],
)
def test_a_damaged_file_changes_nothing(
    exported: Path,
    empty: Artefacts,
    damage: Callable[[bytes], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line names the file and the mend, before the long work of unpacking."""
    monkeypatch.setattr(exchange, "_tar", lambda *_: pytest.fail("unpacks"))
    exported.write_bytes(damage(exported.read_bytes()))
    with pytest.raises(ImageError) as told:
        unpack(empty, exported)
    assert str(exported) in told.value.what and "damaged" in told.value.what
    assert told.value.mend == "copy or export it again"
    assert "\n" not in str(told.value)
    assert [path for path in empty.cache.root.glob("*") if not path.name.endswith(".lock")] == []


def test_an_import_that_was_killed_leaves_nothing_to_the_next(
    exported: Path, empty: Artefacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    if not child:
        monkeypatch.setattr(exchange, "_tar", lambda *_: os._exit(9))
        unpack(empty, exported)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    unpack(empty, exported)
    assert [path for path in empty.cache.root.glob(".i*") if path.is_dir()] == []


def _archive(told: dict[str, object], file: Path) -> None:
    content = json.dumps(told).encode()
    file.write_bytes(struct.pack("<II", 0x184D2A50, len(content)) + content)


def test_a_file_of_an_earlier_version_is_refused(exported: Path) -> None:
    """Until version 2 the file was one for gzip."""
    exported.write_bytes(gzip.compress(b"tar"))
    with pytest.raises(ImageError, match="was made by an earlier version of bluebridge"):
        read_manifest(exported)


def test_another_version_is_refused(exported: Path, empty: Artefacts) -> None:
    """Its guests are others than those that this version runs."""
    told = read_manifest(exported)
    others = [f"{name.rpartition('-')[0]}-{'0' * 16}" for name in told.entries]
    _archive(asdict(replace(told, bluebridge="0.1", entries=others)), exported)
    with pytest.raises(ImageError, match=r"another state of bluebridge \(it says 0\.1\): its lib"):
        unpack(empty, exported)
    assert not empty.cache.root.exists()


def test_another_format_is_refused(exported: Path) -> None:
    """A later version may have changed it."""
    _archive(asdict(replace(read_manifest(exported), format=FORMAT + 1)), exported)
    with pytest.raises(ImageError, match=f"has format {FORMAT + 1}; this version reads {FORMAT}"):
        read_manifest(exported)


@pytest.mark.parametrize(
    "change",
    [
        {"entries": ["../../etc"]},
        {"entries": None},
        {"versions": {"a": "b"}},
        {"extra": 1},
        {"libc": [1]},
    ],
    ids=["outside", "none", "versions", "field", "libc"],
)
def test_a_strange_manifest_is_refused(exported: Path, change: dict[str, object]) -> None:
    """Names of folders have one form, so that nothing is written outside of the cache."""
    told = asdict(Manifest(**asdict(read_manifest(exported))))
    _archive({**told, **change}, exported)
    with pytest.raises(ImageError, match="no exported cache, or is damaged"):
        read_manifest(exported)


def test_a_missing_file_is_named(tmp_path: Path, empty: Artefacts) -> None:
    """The path may have been mistyped."""
    with pytest.raises(ImageError, match=r"there is no .*/nothing; to mend it: look at the path"):
        unpack(empty, tmp_path / "nothing")
