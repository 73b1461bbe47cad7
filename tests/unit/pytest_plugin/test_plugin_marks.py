"""The pytest plugin before anything starts: marks, settings, and what it costs to have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.images.cache import HOME

pytest_plugins = ["pytester"]

WRONG = {
    'devices("hcs")': "mark devices: no device 'hcs'; there is hca, or () for none",
    'devices("hca", "hca")': "mark devices: a device is named twice",
    'devices("hca", vfio="no")': "mark devices: vfio='no' is neither True nor False",
    "devices(vfio=False)": 'mark devices: vfio= and kernel= say who drives the HCA; name "hca"',
    'devices("hca", driver=None)': "mark devices: no argument driver; there are vfio=, kernel= and "
    "card=",
    'devices("hca", card="connectx9")': "mark devices: card='connectx9' is none of connectx3,",
    'devices("hca", vfio=True, kernel=True)': "mark devices: an HCA belongs to vfio-pci or to",
    'devices("hca", kernel=False)': "mark devices: kernel=False is not True",
    "devices(7)": "mark devices: no device 7;",
    "hosts()": "mark hosts: names sides without a guest: 'a', 'b'",
    "hosts('c')": "mark hosts: names sides without a guest: 'a', 'b'",
    "hosts(b='b')": "mark hosts: names sides without a guest: 'a', 'b'",
    "machine()": "mark machine: takes named arguments: cpus, memory_mib, hugepages",
    "machine(2)": "mark machine: takes named arguments",
    "machine(memory=512)": "mark machine: no argument memory; there is cpus, memory_mib",
    "machine(cpus=0)": "mark machine: cpus=0 is no number from 1 to 64",
    "machine(cpus=True)": "mark machine: cpus=True is no number",
    "machine(memory_mib='1G')": "mark machine: memory_mib='1G' is no number",
    "cold_boot(3)": "mark cold_boot: takes no arguments",
    "shared_pair(scope='class')": "mark shared_pair: takes no arguments",
    "may_crash('a')": "mark may_crash: takes no arguments",
}


def test_wrong_marks_are_told_before_anything_starts(pytester: pytest.Pytester) -> None:
    """Every one with its test, in one line each."""
    tests = [
        f"@pytest.mark.{mark}\ndef test_{number}(pair): pass\n" for number, mark in enumerate(WRONG)
    ]
    tests.append("@pytest.mark.cold_boot\ndef test_own(lab): pass\n")
    pytester.makepyfile("import pytest\n" + "".join(tests))
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = [line for line in result.stderr.lines if line.startswith("ERROR: ")]
    assert len(said) == len(WRONG) + 1
    for number, (line, wanted) in enumerate(zip(said, WRONG.values(), strict=False)):
        assert f"::test_{number}: {wanted}" in line
    assert "::test_own: mark cold_boot: the test does not use the fixture `pair`" in said[-1]


def test_marks_of_others_are_none_of_our_business(pytester: pytest.Pytester) -> None:
    """The names are common words; only tests with our fixtures are looked at."""
    pytester.makepyfile("import pytest\n@pytest.mark.devices('gpu', 3)\ndef test_one(): pass\n")
    pytester.runpytest("--strict-markers").assert_outcomes(passed=1)


def test_a_mark_of_the_module_may_concern_some_tests_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\npytestmark = pytest.mark.shared_pair\ndef test_one(lab): pass\n"
    )
    pytester.runpytest().assert_outcomes(passed=1)


def test_marks_and_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    markers = pytester.runpytest("--markers").stdout.str()
    for name in ("cold_boot", "devices(*names", "hosts(*names", "machine(cpus", "shared_pair"):
        assert f"@pytest.mark.{name}" in markers
    fixtures = pytester.runpytest("--fixtures").stdout.str()
    for name in ("pair", "guest_a", "guest_b", "buslog", "scratch", "lab [session scope]"):
        assert f"\n{name} -- " in fixtures


def test_a_wrong_setting_is_told(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nbluebridge_keep = sometimes\n")
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*bluebridge_keep = sometimes: use one of always, failed, never"])


def test_it_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass\ndef test_two(pair): pass\n")
    result = pytester.runpytest_subprocess("-p", "no:bluebridge")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'pair' not found*"])


def test_a_session_without_a_lab_imports_nothing_else(tmp_path: Path) -> None:
    """Whoever has bluebridge installed pays for one small module."""
    (tmp_path / "test_one.py").write_text(
        "import sys\n"
        "OURS = ('bluebridge', 'pexpect', 'cffi', 'rich')\n"
        "def test_one():\n"
        "    found = {name for name in sys.modules if name.partition('.')[0] in OURS}\n"
        "    tools = 'bluebridge.host_tools'\n"
        "    plugin = f'{tools}.pytest_plugin'\n"
        "    names = ('cache_root', 'compiled', 'hot_modules')\n"
        "    ground = {f'bluebridge.{name}' for name in names}\n"
        "    assert found - ground == {'bluebridge', tools, plugin, f'{plugin}.plugin'}\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "test_one.py"]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
