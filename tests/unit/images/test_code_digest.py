"""Keys of artefacts by what their recipes do, not by how they are described."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bluebridge.images.code_digest import bare, code_digest
from bluebridge.images.recipes import module_build

SOURCE = '''\
"""A file."""

import os

NAME = "x"
"""The name,

in two parts."""
TEXT = """\\
# a line of a script, no comment

end
"""


class Box:
    """A box."""

    size: int  # in bytes

    def open(self) -> str:
        # Nobody else has it open.
        return f"{NAME} # {os.sep}"
'''
DESCRIBED_OTHERWISE = (
    ("A file.", "A file.\n\nAnd why."),
    ("two parts", "three"),
    ('    """A box."""\n\n', '    """A large box."""\n\n'),
    ("  # in bytes", ""),
    ("        # Nobody else has it open.\n", ""),
    ("import os\n", "import os  # for the separator\n"),
)
DONE_OTHERWISE = (
    ('"x"', '"y"'),
    ("# a line of a script", "# another line"),
    ("no comment\n\n", "no comment\n"),
    ("# {os.sep}", "% {os.sep}"),
    ("size: int", "size: str"),
)


@pytest.mark.parametrize(("words", "others"), DESCRIBED_OTHERWISE)
def test_another_description_is_the_same_code(words: str, others: str) -> None:
    assert words in SOURCE
    assert bare(SOURCE.replace(words, others)) == bare(SOURCE)


@pytest.mark.parametrize(("words", "others"), DONE_OTHERWISE)
def test_what_is_done_otherwise_is_other_code(words: str, others: str) -> None:
    """Also in a string, such as a script of an artefact."""
    assert words in SOURCE
    assert bare(SOURCE.replace(words, others)) != bare(SOURCE)


def test_what_is_left_is_python_in_one_form() -> None:
    assert bare(SOURCE).splitlines()[1:4] == ["import os", "", 'NAME = "x"']


def test_the_digest_is_of_a_files_contents(tmp_path: Path) -> None:
    file = Path(module_build.__file__)
    copy = tmp_path / "other"
    shutil.copy(file, copy)
    assert code_digest(file) == code_digest(copy)
    copy.write_text(copy.read_text() + "MORE = 1\n")
    assert code_digest(file) != code_digest(copy)
