"""Debian packages and sources by apt with a private root; the host's apt state is not changed.

Versions are resolved once and remembered in `versions.json`, so that later runs need no network and
build the same images; `Packages.refresh` removes them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bluebridge.images.cache import Cache
from bluebridge.images.host import as_root
from bluebridge.images.report import ImageError, run, step

MEND = "set BLUEBRIDGE_MIRROR to the address of a Debian mirror"
INDEX = re.compile(r"^'(?P<site>[^']+)/dists/(?P<suite>[^']+)/(?:In)?Release'", re.MULTILINE)
CODENAMES = ("bullseye", "bookworm", "trixie", "forky", "duke", "sid")
ALIASES = ("oldoldstable", "oldstable", "stable", "testing", "unstable")

SUITE = "trixie"
BACKPORTS = "-backports"
KEYRING_PACKAGE = "debian-archive-keyring"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
URI_LINE = re.compile(r"^'[^']+' (?P<file>\S+) \d+", re.MULTILINE)
LISTS_FRESH_SECONDS = 3600


def choose(listing: str) -> str | None:
    """The Debian mirror among the addresses that `apt-get update --print-uris` prints.

    A security archive has no full suite, and other vendors' archives are not Debian, though some
    use its suite names: a site that also has the suite's updates, or whose path ends in `debian`,
    is preferred, and the name `stable` alone is not enough. None when there is no mirror.
    """
    offers = [(match["site"], match["suite"]) for match in INDEX.finditer(listing)]
    found: list[tuple[int, str]] = []
    for site, suite in offers:
        signs = 2 * ((site, f"{suite}-updates") in offers) + site.rstrip("/").endswith("/debian")
        # Installation discs have neither sources nor backports.
        named = suite in CODENAMES or (signs and suite in ALIASES)
        if named and not site.startswith("cdrom:"):
            found.append((signs, site.rstrip("/")))
    return max(found, key=lambda offer: offer[0])[1] if found else None


def debian_mirror() -> str:
    """Address of the mirror; `BLUEBRIDGE_MIRROR` overrides. Raises `ImageError`.

    Apt prints what it would fetch: that needs no package lists, which a new machine or container
    lacks, and resolves lists of mirrors (`mirror+file:`).
    """
    named = os.environ.get("BLUEBRIDGE_MIRROR")
    if named:
        return named.rstrip("/")
    if shutil.which("apt-get") is None:
        raise ImageError("this machine has no apt-get", "use Debian 12 or 13")
    command = ["apt-get", "update", "--print-uris"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    site = choose(listing)
    if site is None:
        raise ImageError("apt's configuration names no Debian mirror", MEND)
    return site


def _fresh(stamp: Path) -> bool:
    return stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_FRESH_SECONDS


class StaleVersions(ImageError):
    """The mirror no longer carries a version that was remembered."""


class NotRemembered(ImageError):
    """Within `Packages.offline`, a version was asked for that is not remembered."""


class Packages:
    """Packages of a suite of Debian and its backports, downloaded but never installed.

    A request is the words after `apt-get` on the command line: `["install", "make"]` means the
    package with its dependencies, `download` the package alone, `source` its source.
    """

    def __init__(self, cache: Cache, release: str = SUITE) -> None:
        """`release` is a suite, or `SUITE-backports` for packages that come from there first."""
        self.cache = cache
        self.release = release
        self.suite = release.removesuffix(BACKPORTS)
        self.root = cache.root / ("apt" if self.suite == SUITE else f"apt-{self.suite}")
        self._versions = cache.root / "versions.json"
        self._may_ask = True

    def resolve(self, request: Sequence[str], *, backports: bool = False) -> list[str]:
        """Return the file names of the packages of `request`, resolved at the first time."""
        return self._remembered(
            " ".join(request) + self._suffix(backports), lambda: self._files(request, backports)
        )

    def newest(self, pattern: str) -> str:
        """Return the newest package, backports included, whose name matches a pattern."""
        request = f"newest {pattern}{self._suffix(False)}"
        return self._remembered(request, lambda: [self._newest(pattern)])[0]

    def _suffix(self, backports: bool) -> str:
        """Return the end of a request as it is remembered, which names where it is resolved."""
        if backports:
            return " (backports)"
        return "" if self.release == SUITE else f" ({self.release})"

    def fetch(self, request: Sequence[str], *, backports: bool = False) -> list[Path]:
        """Return the downloaded files of `request`; raises `StaleVersions` if one is not there."""
        files = self.resolve(request, backports=backports)
        archives = self.root / "cache" / "archives"
        wanted = [archives / file for file in files]
        with self.cache.lock("apt"):
            if not all(path.exists() for path in wanted):
                verb, *names = request
                self._prepare(verb)
                flags = [] if verb == "download" else ["--download-only"]
                with step(f"download {names[0]}"):
                    self._apt(["-y", *flags, verb, *names], backports, archives)
        missing = [path.name for path in wanted if not path.exists()]
        if missing:
            raise StaleVersions(
                f"the mirror no longer has {missing[0]}",
                "`.venv/bin/python -m bluebridge.images refresh`",
            )
        return wanted

    @contextmanager
    def offline(self) -> Iterator[None]:
        """Within the `with` block, a version that is not remembered raises `NotRemembered`."""
        before, self._may_ask = self._may_ask, False
        try:
            yield
        finally:
            self._may_ask = before

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within the `with` block no process drops downloaded files."""
        with self.cache.lock(self._downloads, shared=True):
            yield

    def drop_downloads(self) -> None:
        """Remove the downloaded files, unless a process builds from some: it needs them."""
        with self.cache.lock_if_free(self._downloads) as alone, self.cache.lock("apt"):
            if alone:
                shutil.rmtree(self.root / "cache", ignore_errors=True)

    def refresh(self) -> None:
        """Forget the versions, so that the next use resolves them anew, by new package lists."""
        self._versions.unlink(missing_ok=True)
        for sources in (True, False):
            self._stamp(sources).unlink(missing_ok=True)
        self.drop_downloads()

    @property
    def _downloads(self) -> str:
        return f"{self.root.name}-downloads"

    def remembered(self) -> dict[str, list[str]]:
        """Return the remembered versions: files by request."""
        return self._read_versions()

    def remember(self, versions: Mapping[str, list[str]]) -> None:
        """Remember these versions, files by request, in place of others for the same request."""
        with self.cache.lock("apt"):
            self._write_versions({**self._read_versions(), **versions})

    def _remembered(self, request: str, ask: Callable[[], list[str]]) -> list[str]:
        known = self._read_versions()
        if request in known:
            return known[request]
        if not self._may_ask:
            raise NotRemembered(f"the version of {request} is not known yet", "make setup")
        with self.cache.lock("apt"):
            known = self._read_versions()
            if request not in known:
                known[request] = ask()
                self._write_versions(known)
        return known[request]

    def _write_versions(self, known: Mapping[str, list[str]]) -> None:
        aside = self._versions.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(known, indent=1, sort_keys=True))
        aside.rename(self._versions)

    def _read_versions(self) -> dict[str, list[str]]:
        """The remembered versions by request; none if the file is unreadable."""
        try:
            known = json.loads(self._versions.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _files(self, request: Sequence[str], backports: bool) -> list[str]:
        verb, *names = request
        self._prepare(verb)
        # apt leaves out files that it finds downloaded: give it an empty archive folder.
        no_archives = ["-o", f"Dir::Cache::archives={self.root / 'no_archives'}"]
        (self.root / "no_archives" / "partial").mkdir(parents=True, exist_ok=True)
        output = self._apt(
            [*no_archives, "-y", "--print-uris", verb, *names], backports, self.root / "no_archives"
        )
        files = sorted(URI_LINE.findall(output))
        if not files:
            raise ImageError(f"the mirror has no {' '.join(names)}", MEND)
        return files

    def _newest(self, pattern: str) -> str:
        self._prepare("search")
        expression = re.compile(pattern)
        words = ["--names-only", "search", "^linux-"]
        output = self._apt(words, False, self.root, tool="apt-cache")
        names = [line.split(" ", 1)[0] for line in output.splitlines()]
        found = [name for name in names if expression.fullmatch(name)]
        if not found:
            raise ImageError(f"the mirror has no package like {pattern}", MEND)
        return max(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])

    def _prepare(self, verb: str) -> None:
        """Write the sources list and fetch the package lists if they are old or missing.

        Who asks for a `source` only, as `krping --host a,b` does, waits for no other list.
        """
        self.cache.need_room()
        lists = self.root / "state" / "lists"
        sources = verb == "source"
        stamps = [self._stamp(False), self._stamp(True)] if sources else [self._stamp(False)]
        if any(map(_fresh, stamps)):
            return
        if not KEYRING.exists():
            raise ImageError(
                f"{KEYRING} is missing", as_root("apt-get", "install", KEYRING_PACKAGE)
            )
        for folder in (lists / "partial", self.root / "cache" / "archives" / "partial"):
            folder.mkdir(parents=True, exist_ok=True)
        mirror = debian_mirror()
        lines = [
            f"{kind} [signed-by={KEYRING}] {mirror} {suite} main"
            for kind, suite in (
                ("deb-src", self.suite),
                ("deb", self.suite),
                ("deb", f"{self.suite}{BACKPORTS}"),
            )[: 1 if sources else None]
        ]
        (self.root / "sources.list").write_text("\n".join(lines) + "\n")
        with step("package lists"):
            self._apt(["-o", "APT::Update::Error-Mode=any", "update"], False, self.root)
        self._stamp(sources).touch()

    def _stamp(self, sources: bool) -> Path:
        """Return the file whose time is that of the last fetch of lists, or of `sources` alone."""
        return self.root / ("updated-sources" if sources else "updated")

    def _apt(self, words: Sequence[str], backports: bool, cwd: Path, tool: str = "apt-get") -> str:
        release = f"{self.suite}{BACKPORTS}" if backports else self.release
        settings = {
            "Dir::Etc::sourcelist": self.root / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferencesparts": "-",
            "Dir::State": self.root / "state",
            "Dir::State::lists": self.root / "state" / "lists",
            "Dir::State::status": os.devnull,
            "Dir::Cache": self.root / "cache",
            "Dir::Log": self.root,
            "APT::Default-Release": release,
            "APT::Install-Recommends": "false",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            # apt's own download user may have no access to the cache folder.
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        (self.root / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        return run([tool, *options, *words], cwd=cwd, what=f"{tool}: {words[-1]}")
