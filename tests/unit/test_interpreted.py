"""Which files of tests run on both builds: `python -m tests.interpreted`."""

from __future__ import annotations

import pytest

from tests import interpreted


@pytest.fixture(scope="module")
def files() -> set[str]:
    """The files that do."""
    return set(interpreted.files())


@pytest.mark.parametrize(
    "name",
    [
        "tests/unit/test_hca_cq.py",  # by imports
        "tests/unit/test_web_server.py",  # the log's reader, by imports of imports
        "tests/unit/test_completion.py",  # by the name of a program that it starts
        "tests/wire/test_krping.py",  # by a fixture
    ],
)
def test_whatever_runs_compiled_code_runs_on_both(files: set[str], name: str) -> None:
    assert name in files


@pytest.mark.parametrize("name", ["test_images_apt", "test_agent_files", "test_rnbd_engine"])
def test_what_runs_none_of_it_runs_once(files: set[str], name: str) -> None:
    assert f"tests/unit/{name}.py" not in files


def test_a_test_of_the_device_server_is_never_left_out(files: set[str]) -> None:
    wire = {f"tests/wire/{path.name}" for path in interpreted.HOME.glob("tests/wire/test_*.py")}
    assert wire <= files
