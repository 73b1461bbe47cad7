"""The choice of a mirror and the remembered versions, with scripts as apt programs in PATH."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bluebridge.images import host
from bluebridge.images.apt import NotRemembered, Packages, StaleVersions, choose, debian_mirror
from bluebridge.images.cache import Cache
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import ImageError, failure

LISTING = """\
'http://vendor.example/apt/dists/stable/InRelease' vendor.example_apt_dists_stable_InRelease 0
'http://vendor.example/x/dists/bookworm/InRelease' vendor.example_x_dists_bookworm_InRelease 0
'http://m.example/debian-security/dists/bookworm-security/InRelease' m_InRelease 0
'http://m.example/debian/dists/bookworm-updates/InRelease' m_updates_InRelease 0
'http://m.example/debian/dists/bookworm/InRelease' m_InRelease 0
'http://m.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' m_Packages 0
"""
CLOUD = """\
'mirror+file:/etc/apt/mirrors/debian.list/dists/trixie/InRelease' _etc_trixie_InRelease 0
'mirror+file:/etc/apt/mirrors/debian.list/dists/trixie-updates/InRelease' _etc_InRelease 0
'mirror+file:/etc/apt/mirrors/debian-security.list/dists/trixie-security/InRelease' _etc_x 0
"""
APT = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in
    *update*--print-uris) cat {listing} ;;
    *print-uris*) echo "'http://mirror.example/x_1%3a2_amd64.deb' x_1%3a2_amd64.deb 7 SHA256:0" ;;
    *search*) printf 'linux-image-6.12.9 -\\nlinux-image-6.12.10 -\\nlinux-image-7.1.1 -\\n' ;;
    *download-only*) {download} ;;
esac
"""


class FakeApt:
    """apt-get and apt-cache as scripts at the front of PATH, which record their arguments."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._calls = folder / "calls"
        (folder / "listing").write_text(LISTING)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.delenv("BLUEBRIDGE_MIRROR", raising=False)
        self.answer_downloads_with("true")

    def answer_downloads_with(self, shell: str) -> None:
        """Let a download run the shell words."""
        for name in ("apt-get", "apt-cache"):
            script = self.folder / name
            script.write_text(
                APT.format(calls=self._calls, listing=self.folder / "listing", download=shell)
            )
            script.chmod(0o755)

    def calls(self) -> list[str]:
        """Command lines so far."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApt:
    folder = tmp_path / "bin"
    folder.mkdir()
    return FakeApt(folder, monkeypatch)


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(Cache(tmp_path / "cache"))


def test_mirror_is_the_plain_debian_suite() -> None:
    assert choose(LISTING) == "http://m.example/debian"


def test_mirror_may_be_a_list_of_mirrors() -> None:
    assert choose(CLOUD) == "mirror+file:/etc/apt/mirrors/debian.list"


def test_mirror_may_have_any_path() -> None:
    plain = "'http://10.0.0.1:3142/pool/dists/trixie/InRelease' x 0"
    assert choose(plain) == "http://10.0.0.1:3142/pool"
    assert choose(f"{LISTING}{plain}") == "http://m.example/debian"


@pytest.mark.parametrize("site", ["http://vendor.example/apt/dists/stable", "cdrom:[D]/dists/sid"])
def test_no_mirror_without_debian(site: str) -> None:
    assert choose(f"'{site}/InRelease' x 0 \nrubbish\n") is None


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ("deb http://m.example/any trixie main\n", "http://m.example/any"),
        ("deb mirror+file:/m.list trixie main\n", "mirror+file:/m.list"),
    ],
)
def test_the_mirror_is_read_from_apt_without_package_lists(
    sources: str, mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "sources.list").write_text(sources)
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{tmp_path}/lists";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.delenv("BLUEBRIDGE_MIRROR", raising=False)
    assert debian_mirror() == mirror


def test_mirror_comes_from_apt_unless_named(apt: FakeApt, monkeypatch: pytest.MonkeyPatch) -> None:
    assert debian_mirror() == "http://m.example/debian"
    monkeypatch.setenv("BLUEBRIDGE_MIRROR", "http://other.example/debian/")
    assert debian_mirror() == "http://other.example/debian"


def test_mirror_error_names_the_remedy(apt: FakeApt) -> None:
    (apt.folder / "listing").write_text("")
    with pytest.raises(ImageError, match="no Debian mirror; to mend it: set BLUEBRIDGE_MIRROR"):
        debian_mirror()


def test_versions_are_resolved_once(apt: FakeApt, packages: Packages, tmp_path: Path) -> None:
    assert packages.resolve(["install", "x"]) == ["x_1%3a2_amd64.deb"]
    before = apt.calls()
    assert Packages(Cache(tmp_path / "cache")).resolve(["install", "x"]) == ["x_1%3a2_amd64.deb"]
    assert apt.calls() == before


def test_offline_runs_no_apt(apt: FakeApt, packages: Packages) -> None:
    with packages.offline(), pytest.raises(NotRemembered):
        packages.resolve(["install", "x"])
    assert apt.calls() == []


def test_host_lists_are_never_used(apt: FakeApt, packages: Packages) -> None:
    packages.resolve(["install", "x"])
    for call in apt.calls():
        if call != "update --print-uris":
            assert f"Dir::State::lists={packages.root}/state/lists" in call
            assert "Dir::Etc::sourceparts=-" in call


def test_only_the_lists_that_are_asked_for_are_fetched(apt: FakeApt, packages: Packages) -> None:
    """Those of binary packages are half of the time in which a library is built from source."""
    listed = packages.root / "sources.list"
    packages.resolve(["source", "x"])
    assert [line.split()[0] for line in listed.read_text().splitlines()] == ["deb-src"]
    packages.resolve(["install", "x"])
    assert {line.split()[0] for line in listed.read_text().splitlines()} == {"deb", "deb-src"}
    packages.resolve(["source", "y"])
    assert "deb " in listed.read_text()
    updates = [call for call in apt.calls() if call.endswith(" update")]
    assert len(updates) == 2


def test_newest_compares_numbers(apt: FakeApt, packages: Packages) -> None:
    assert packages.newest(r"linux-image-6\.12\.\d+") == "linux-image-6.12.10"


def test_versions_are_resolved_anew_after_damage(apt: FakeApt, packages: Packages) -> None:
    packages.cache.root.mkdir()
    (packages.cache.root / "versions.json").write_text("{half")
    assert packages.resolve(["install", "x"]) == ["x_1%3a2_amd64.deb"]


def test_a_mirror_without_the_version_is_an_error_of_its_own(
    apt: FakeApt, packages: Packages
) -> None:
    with pytest.raises(StaleVersions, match="no longer has x_1%3a2"):
        packages.fetch(["install", "x"])


def test_downloads_stay_while_another_process_builds_from_them(packages: Packages) -> None:
    """Each process drops what it has downloaded as soon as its own build is finished."""
    download = packages.root / "cache" / "archives" / "x.deb"
    download.parent.mkdir(parents=True)
    download.touch()
    Another(Cache(packages.cache.root), packages).folder()
    assert download.exists()
    packages.drop_downloads()
    assert not download.exists()


class Another(Recipe):
    """During its build another process ends its own, then the mirror turns out to be newer."""

    name = "another"

    def inputs(self) -> list[object]:
        return []

    def build(self, folder: Path) -> None:
        Packages(Cache(self.cache.root)).drop_downloads()
        Packages(Cache(self.cache.root)).refresh()


def test_no_network_is_one_line(apt: FakeApt, packages: Packages) -> None:
    apt.answer_downloads_with("echo 'E: Could not resolve mirror.example' >&2; exit 100")
    with pytest.raises(ImageError, match="mirror cannot be reached; to mend it: check the network"):
        packages.fetch(["install", "x"])


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("tar: x: Cannot write: No space left on device", "the disk is full"),
        ("noise\nE: Unable to locate package nix\nmore", "E: Unable to locate package nix"),
        ("", "exit status 3"),
    ],
)
def test_a_programs_failure_is_the_line_with_the_reason(output: str, what: str) -> None:
    assert what in failure("install", output, 3).what


@pytest.mark.parametrize(
    ("user", "sudo", "typed"),
    [
        (0, True, "apt-get install x"),
        (1000, True, "sudo apt-get install x"),
        (1000, False, "su -c 'apt-get install x'"),
    ],
)
def test_the_command_line_has_sudo_only_where_it_exists(
    user: int, sudo: bool, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setenv("PATH", str(tmp_path))
    if sudo:
        (tmp_path / "sudo").write_text("#!/bin/sh\n")
        (tmp_path / "sudo").chmod(0o755)
    assert host.as_root("apt-get", "install", "x") == typed


def test_neither_root_nor_sudo_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(host, "NEEDS", (host.Need("x", "", lambda: False),))
    with pytest.raises(ImageError, match=r"nor have sudo; to mend it: su -c 'apt-get install .*'$"):
        host.install()


def test_krping_asks_for_fewer_packages_than_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    used = host.Need("used", "", lambda: False)
    tests = host.Need("tests", "", lambda: False, host.Use.WORK)
    monkeypatch.setattr(host, "NEEDS", (used, tests))
    assert (host.missing(host.Use.GUESTS), host.missing()) == ([used], [used, tests])


def test_packages_without_network_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apt-get").write_text(
        "#!/bin/sh\ncase $1 in\n"
        "update) echo 'Err:1 Temporary failure resolving m.example' ;;\n"
        "*) echo 'E: Package x has no installation candidate'; exit 100 ;;\nesac\n"
    )
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(host, "NEEDS", (host.Need("x", "", lambda: False),))
    with pytest.raises(ImageError, match="the package mirror cannot be reached; to mend it: check"):
        host.install()


@pytest.mark.parametrize("module", ["bluebridge.images.host", "bluebridge.images.environment"])
def test_set_up_needs_nothing_but_the_standard_library(module: str) -> None:
    done = subprocess.run(
        ["python3", "-I", "-c", f"import sys; sys.path.insert(0, '.'); import {module}"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
