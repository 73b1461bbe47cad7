"""docs/architecture.md and the tree say the same: which rooms there are, and who imports whom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.models import house

MODULES = house.modules()
ROOMS = house.rooms(house.PAGE.read_text(encoding="utf-8"))
PATH = re.compile(r"`((?:device|guest|host_tools|images|tests)/[\w/.]+)")
PAGES = [house.HOME / "README.md", *sorted((house.HOME / "docs").glob("*.md"))]
OLD_START = re.compile(r"""-m["',\s]+(?:device|guest|host_tools|images)\b(?![-/])""")
OURS = {name for name in MODULES if not name.startswith("tests")}


@pytest.fixture(scope="module")
def graph() -> house.Graph:
    """Who imports whom; not made where other tests of the file are only collected."""
    return house.graph(MODULES)


def test_no_module_is_part_of_a_circle_of_imports(graph: house.Graph) -> None:
    """Types included: imports under TYPE_CHECKING count."""
    assert house.circles(graph) == []


def test_no_folder_is_part_of_a_circle_of_siblings(graph: house.Graph) -> None:
    """Folders and files of one folder, whichever rows of the tables they have."""
    assert house.circles_of_siblings(graph) == []


def test_every_module_stands_in_a_room_of_the_table(graph: house.Graph) -> None:
    homeless = {name for name in MODULES if not house.room_of(name, ROOMS)}
    groups = {"device.mlx4", "device.mlx5", "device.rdma"}
    assert homeless == {*house.PACKAGES, *groups} - {"guest", "images"}
    assert not any(graph[name] for name in homeless)


def test_every_room_of_the_table_exists() -> None:
    assert sorted(name for name in ROOMS if name not in MODULES) == []


def test_every_import_is_one_that_the_table_allows(graph: house.Graph) -> None:
    wrong = [
        f"{importer} -> {target}"
        for importer, targets in sorted(graph.items())
        for target in sorted(targets)
        if (room := house.room_of(importer, ROOMS))
        and room != (other := house.room_of(target, ROOMS))
        and not house.may(ROOMS[room], other)
    ]
    assert wrong == []


def test_no_engine_knows_a_card(graph: house.Graph) -> None:
    """Whatever the table says: a second face needs no line in them."""
    engines = (
        "device.frames",
        "device.rdma",
        "device.ethernet",
        "device.queue_pairs",
        "device.rings",
    )
    cards = ("device.mlx4", "device.layout.mlx4", "device.mlx5", "device.layout.mlx5")
    assert [
        f"{importer} -> {target}"
        for importer, targets in sorted(graph.items())
        for target in sorted(targets)
        if importer.startswith(engines) and target.startswith(cards)
    ] == []


def test_no_row_names_a_room_that_it_does_not_import(graph: house.Graph) -> None:
    used = {
        (house.room_of(importer, ROOMS), house.room_of(target, ROOMS))
        for importer, targets in graph.items()
        for target in targets
    }
    named = {(room.name, other) for room in ROOMS.values() for other in room.named}
    assert sorted(named - used) == []


def test_the_table_itself_has_no_circle() -> None:
    edges = {
        room.name: {other for other in ROOMS if other != room.name and house.may(room, other)}
        for room in ROOMS.values()
    }
    assert house.circles(edges) == []


@pytest.mark.parametrize(
    "name", sorted(name for name, room in ROOMS.items() if room.standard_library_only)
)
def test_rooms_that_need_nothing_installed(name: str) -> None:
    """They run in guests, and before there is an environment."""
    found = {
        module: sorted(foreign)
        for module in OURS
        if house.room_of(module, ROOMS) == name
        and (foreign := house.foreign(module, MODULES[module]))
    }
    assert found == {}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = set(PATH.findall(page.read_text(encoding="utf-8")))
    assert sorted(name for name in named if not (house.HOME / name).exists()) == []


def started_by_an_old_name(text: str) -> list[str]:
    """Return the starts of a module of ours without `bluebridge.`, in a shell line or a list."""
    return [found[0].strip() for found in OLD_START.finditer(text)]


def test_no_file_starts_a_module_by_a_name_without_bluebridge() -> None:
    """Programs of the tree, its pages, and scripts of its guests."""
    found = {
        str(path.relative_to(house.HOME)): starts
        for path in house.texts()
        if (starts := started_by_an_old_name(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_a_start_by_an_old_name_would_be_seen() -> None:
    package = "host_" + "tools"
    for line in (f"python -m {package}.cli x", f'["-m", "{package}.cli"]', f"'-m',\n '{package}'"):
        assert started_by_an_old_name(line)
        assert not started_by_an_old_name(line.replace(package, f"bluebridge.{package}"))


def test_a_circle_and_a_forbidden_import_would_be_seen() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set[str]()}
    assert house.circles(edges) == [["b", "c"]]
    crossed = {"p.a.x": {"p.b"}, "p.b.y": {"p.a.z"}, "p.a.z": set[str](), "p.b": set[str]()}
    assert house.circles(crossed) == []
    assert house.circles_of_siblings(crossed) == [["p.a", "p.b"]]
    assert house.circles_of_siblings({"p.a": {"p.b"}, "p.b": {"p"}, "p": {"p.a"}}) == []
    rows = ("| room | what | may import |", "|---|---|---|", "| `x/low` | l | |")
    known = house.rooms("\n".join((*rows, "| `x/high` | h | the rooms above |")))
    assert house.may(known["x.high"], "x.low") and not house.may(known["x.low"], "x.high")
    assert house.room_of("x.low.module", known) == "x.low"
