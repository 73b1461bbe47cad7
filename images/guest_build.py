"""Builds the compiled modules of the guest's code, for the guest's own Python.

mypyc of this environment writes C, of which this machine's compiler makes extension modules, with
the headers of the guest's Python. They name no version of any library, so that a guest with an
older C library than this machine's takes them. A build is an artefact of the cache, with a key of
all sources that the guest gets: one of other sources is never found. Without one the guest runs
the sources.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bluebridge.compiled import wanted
from bluebridge.images import extensions
from bluebridge.images.cache import HOME, Cache, key_of
from bluebridge.images.code_digest import code_digest
from bluebridge.images.recipes.recipe import FOLDERS
from bluebridge.images.report import run

NAME = "compiled-guest"
SUFFIX = ".so"
TOLD = "told.json"
"""The name of the file that `mypyc_code` writes."""
OWN = ("extensions.py", "guest_build.py", "mypyc_code.py", "recipes/recipe.py")
COMPILE = ("-O1", "-fPIC", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE", "-DNDEBUG", "-w")
LINK = ("-shared", "-nostdlib", "-Wl,-s", "-Wl,-z,noseparate-code")

GROUP = "bluebridge_guest"
# A module that runs seldom stays a source: importing native code takes a guest longer than
# importing byte code, since each page of it must be translated by the emulator first. So do modules
# that are started by `python3 -m`, and those that only declare constants or protocols.
MODULES = tuple(
    f"bluebridge.guest.{name}"
    for name in (
        "bus.byte_order",
        "bus.vectors",
        "bus.vfio",
        "drivers.common.completion_ring",
        "drivers.common.event_queue",
        "drivers.common.qp_attributes",
        "drivers.common.receive_queue",
        "drivers.common.shared_receives",
        "drivers.dma.channel",
        "drivers.hca.posting.operations",
        "drivers.hca.posting.wqe",
        "drivers.hca.queues.cq",
        "drivers.hca.queues.event_queues",
        "drivers.hca.queues.qp",
        "drivers.hca.queues.work_queues",
        "drivers.mlx5.cq",
        "drivers.mlx5.event_queues",
        "drivers.mlx5.frame_qp",
        "drivers.mlx5.qp",
        "drivers.mlx5.work_queues",
        "drivers.mlx5.wqe",
        "protocols.krping.benchmarks",
        "protocols.krping.progress",
        "protocols.krping.resources",
        "protocols.krping.sides",
        "protocols.krping.thread",
        "ntrdma.engine.completions",
        "ntrdma.engine.engine",
        "ntrdma.engine.ethernet",
        "ntrdma.engine.memory",
        "ntrdma.engine.own_side",
        "ntrdma.engine.peer",
        "ntrdma.engine.queue_pair",
        "ntrdma.engine.receives",
        "ntrdma.engine.regions",
        "ntrdma.engine.remote_pair",
        "ntrdma.engine.requester",
        "ntrdma.engine.responder",
        "ntrdma.engine.sends",
        "ntrdma.interface",
        "ntrdma.provider.resources",
        "ntrdma.provider.queue_pair",
        "ntrdma.service",
        "ntrdma.transports.ntb",
        "protocols.rtrs.engine.actions",
        "protocols.rtrs.engine.client.dispatch",
        "protocols.rtrs.engine.client.path",
        "protocols.rtrs.engine.client.session",
        "protocols.rtrs.engine.client.shared",
        "protocols.rtrs.engine.client.traffic",
        "protocols.rtrs.engine.connection",
        "protocols.rtrs.engine.interface",
        "protocols.rtrs.engine.server.messages",
        "protocols.rtrs.engine.server.operations",
        "protocols.rtrs.engine.server.path",
        "protocols.rtrs.engine.server.server",
        "protocols.rtrs.engine.server.traffic",
        "protocols.rtrs.traffic",
        "protocols.rtrs.transport.connection",
        "protocols.rtrs.transport.loop",
        "protocols.rtrs.transport.memory",
        "protocols.rtrs.transport.transport",
        "rounds",
        "verbs.transitions",
        "verbs.values",
    )
)


def key(code: str) -> str:
    """The key of the build of the sources whose own key is `code` (`overlay.code_key`)."""
    here = Path(__file__).parent
    return key_of(NAME, code, code_digest(*(here / name for name in OWN)))


def present(cache: Cache, code: str) -> Path | None:
    """Return the build of these sources, None if there is none or `BLUEBRIDGE_PURE` is set."""
    if not wanted():
        return None
    folder = cache.folder(NAME, key(code))
    return folder if folder.is_dir() else None


def ensure(cache: Cache, code: str, headers: Path) -> Path:
    """The build of these sources, made now if it is missing; raises `ImageError`.

    `headers` is the folder of `PythonHeadersRecipe`.
    """
    return cache.ensure(NAME, key(code), lambda folder: build(folder, headers))


def build(folder: Path, headers: Path) -> None:
    """Make the extension modules in `folder`, each called by its full name; raises `ImageError`."""
    compiler = extensions.compiler()
    code = folder / "c"
    code.mkdir()
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "bluebridge.images.mypyc_code",
        "guest",
        code,
    ]
    run(command, what="mypyc", cwd=HOME, env={"PYTHONPATH": str(HOME)})
    told = json.loads((code / TOLD).read_text())
    includes = [code, Path(told["headers"]), *(headers / name for name in FOLDERS)]
    words = [compiler, *COMPILE, *(f"-I{include}" for include in includes)]
    extensions.build(told["modules"], partial(_compile, words), (compiler, *LINK), folder, SUFFIX)
    shutil.rmtree(code)


def _compile(words: Sequence[str], source: Path) -> Path:
    made = source.with_suffix(".o")
    run([*words, "-c", source, "-o", made], what=f"compile {source.name}")
    return made
