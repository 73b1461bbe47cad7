"""`bluebridge web`: the lab, or a finished log, as a page in a browser."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import bottle

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools.analyzer import model as models
from bluebridge.host_tools.analyzer.output import opened
from bluebridge.host_tools.analyzer.transaction import TimeModel
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab.roots import runtime_root
from bluebridge.host_tools.processes import termination_as_exception
from bluebridge.host_tools.web.app import Site, serve
from bluebridge.host_tools.web.book import Book
from bluebridge.host_tools.web.lab import Lab, Live, find
from bluebridge.host_tools.web.save import page
from bluebridge.host_tools.web.side_by_side import SideBySide
from bluebridge.host_tools.web.web_options import SAVED

_DOOR = """<!DOCTYPE html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">bluebridge</a>
"""
_NICE = 10  # The niceness of the process, so that the guests come first


def main(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C, or save it; returns 0. Raises `LabError`."""
    _check(options)
    if options.compare is not None:
        return _compare(options)
    folder, title, socket = find(options.folder)
    try:
        lab = Lab(LogReader(folder), title, socket)
        book = Book(lab.reader.folder, _model(options.profile))
        if options.save is not None:
            return _save(lab, book, options)
    except LogError as error:
        raise UsageError(str(error), "name the folder of a run or of a log") from error
    return _serve(Site(lab, book, Live(lab)).application(), lab.title, options)


def _compare(options: argparse.Namespace) -> int:
    try:
        # Without their sockets: a comparison changes no hardware.
        found = [find(folder) for folder in options.compare]
        one, other = (Lab(LogReader(folder), title) for folder, title, _ in found)
    except LogError as error:
        raise UsageError(str(error), "name the folders of two runs or logs") from error
    return _serve(SideBySide(one, other).application(), f"{one.title} and {other.title}", options)


def _check(options: argparse.Namespace) -> None:
    for name in ("limit", "event", "kind", "force"):
        if options.save is None and getattr(options, name) not in (None, False):
            raise UsageError(f"--{name} is for a page in a file", "add --save FILE")
    if options.compare is not None:
        for name in ("folder", "save", "profile"):
            if getattr(options, name) is not None:
                word = "DIR" if name == "folder" else f"--{name}"
                raise UsageError(f"--compare has two logs and no {word}", "drop one")
    if options.save is not None and options.port:
        raise UsageError("--save serves nothing, so it has no --port", "drop one")


def _model(name: str | None) -> TimeModel | None:
    if name is None:
        return None
    try:
        return models.load(name)
    except ValueError as error:
        raise UsageError(str(error), "name a profile or a file") from error


def _save(lab: Lab, book: Book, options: argparse.Namespace) -> int:
    limit = SAVED if options.limit is None else options.limit
    try:
        lab.reader.check_event(options.event or 0)
        with opened(options.save, replace=options.force) as file:
            for piece in page(lab, book, options.event or 0, limit, options.kind or ""):
                file.write(piece)
    except LogError as error:
        raise LabError(str(error)) from error
    print(f"{options.save}: written", file=sys.stderr)
    return 0


def _serve(site: bottle.Bottle, title: str, options: argparse.Namespace) -> int:
    os.nice(_NICE)
    secret = secrets.token_urlsafe(24)
    try:
        server = serve(site, secret, options.port)
    except OSError as error:
        raise LabError(f"port {options.port}: {error.strerror}", "choose another --port") from error
    address = f"http://127.0.0.1:{server.server_port}/{secret}/"
    print(f"{title}: {address}", flush=True)
    print("Ctrl-C ends it", file=sys.stderr)
    with termination_as_exception(), server, _door(address) as door:
        if options.open and not webbrowser.open(door):
            print("no browser was found: open the address yourself", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0


@contextlib.contextmanager
def _door(address: str) -> Iterator[str]:
    """Yield the URL of a file of the user's own that leads to `address`; it is removed at the end.

    Every user of the host can read a browser's command line, where the secret must not stand.
    """
    descriptor, name = tempfile.mkstemp(".html", "bluebridge-web-", runtime_root())  # mode 0600
    door = Path(name)
    try:
        with open(descriptor, "w") as file:
            file.write(_DOOR.format(address=address))
        yield door.as_uri()
    finally:
        door.unlink(missing_ok=True)
