"""The jobs in docs/ci.md: they are YAML, what they call exists, and their tests run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bluebridge import cache_root
from bluebridge.host_tools.pytest_plugin import plugin

ROOT = Path(__file__).resolve().parents[3]
SHORT_GITHUB, SHORT_GITLAB, *JOBS = [
    yaml.safe_load(text)
    for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)
]
SET_UP = ROOT / "ci" / "set-up"


def _lines(job: dict[str, Any]) -> Iterator[str]:
    """The shell lines of a job of either system."""
    texts = [step["run"] for step in job.get("steps", ()) if "run" in step]
    texts += [*job.get("before_script", ()), *job.get("script", ())]
    for text in texts:
        yield from filter(None, text.splitlines())


def _test_line(job: dict[str, Any]) -> list[str]:
    """The words of the line that runs the project's tests."""
    (found,) = (shlex.split(line) for line in _lines(job) if "pytest" in line)
    return found


def _job(whole: dict[str, Any]) -> dict[str, Any]:
    job: dict[str, Any] = whole["jobs"]["pairs"] if "jobs" in whole else whole["pairs"]
    return job


each_job = pytest.mark.parametrize("job", [*map(_job, JOBS)], ids=["github", "gitlab"])


def test_there_is_a_job_for_both_systems() -> None:
    github, gitlab = JOBS
    assert {step.get("uses", "").partition("@")[0] for step in _job(github)["steps"]} >= {
        "actions/checkout",
        "actions/cache",
        "actions/upload-artifact",
    }
    assert _job(gitlab)["artifacts"]["reports"]["junit"] == "report.xml"


@each_job
def test_the_commands_exist(job: dict[str, Any]) -> None:
    """Targets of the Makefile, settings of the plugin, the packages that `make` needs first."""
    said = " ".join(_lines(job))
    for line in _lines(job):
        subprocess.run(["sh", "-n", "-c", line], check=True)
    targets = re.findall(r"make -C \.bluebridge (\S+)", said)
    assert targets
    subprocess.run(["make", "-n", *targets], cwd=ROOT, check=True, capture_output=True)
    test = _test_line(job)
    assert test[:3] == [".bluebridge/.venv/bin/python", "-m", "pytest"]
    assert "--junitxml=report.xml" in test
    (setting,) = (word for word in test if word.startswith("bluebridge_"))
    assert f'"{setting.partition("=")[0]}"' in Path(plugin.__file__).read_text()
    for package in ("git", "make", "python3", "python3-venv"):
        assert package in said.split()


@each_job
def test_the_cached_folder_is_the_one_that_is_used(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = {**job.get("env", {}), **job.get("variables", {})}["BLUEBRIDGE_CACHE"]
    cached = [
        step["with"]["path"] for step in job.get("steps", ()) if "cache" in step.get("uses", "")
    ]
    cached += [
        f"$CI_PROJECT_DIR/{path.rstrip('/')}" for path in job.get("cache", {}).get("paths", ())
    ]
    assert cached == [folder]
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(tmp_path))
    assert cache_root.cache_root() == str(tmp_path)


@each_job
def test_what_is_kept_of_a_failure_is_an_artefact(job: dict[str, Any]) -> None:
    test = _test_line(job)
    (setting,) = (word for word in test if word.startswith("bluebridge_scratch="))
    kept = setting.partition("=")[2]
    uploads = [
        step["with"]["path"] for step in job.get("steps", ()) if "upload" in step.get("uses", "")
    ]
    paths = " ".join([*uploads, *job.get("artifacts", {}).get("paths", ())]).split()
    assert f"{kept}/" in paths


def test_the_line_of_the_tests_runs(tmp_path: Path) -> None:
    """In a project of one test that fails, it leaves what the job keeps: a report and a folder."""
    line, same = (_test_line(_job(job)) for job in JOBS)
    assert line == same
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("def test_it(scratch):\n    assert False\n")
    _python, *words = line
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert 'failures="1"' in (tmp_path / "report.xml").read_text()
    assert list((tmp_path / "kept").glob("*/test_it-test_it"))


def test_the_short_jobs_use_what_the_checkout_has() -> None:
    """The action and the template run the script of the set-up, with the names it has."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    template = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())
    uses = [step.get("uses", "") for step in _job(SHORT_GITHUB)["steps"]]
    assert any(use.startswith("OWNER/bluebridge@") for use in uses)
    assert SHORT_GITLAB["include"][0]["remote"].endswith("/ci/gitlab.yml")
    job = template[_job(SHORT_GITLAB)["extends"]]
    assert job["before_script"][-1] == ".bluebridge/ci/set-up $CACHE_FILE"
    assert job["artifacts"]["reports"]["junit"] == "report.xml"
    (step,) = (step for step in action["runs"]["steps"] if "run" in step)
    assert '/ci/set-up" "$CACHE_FILE"' in step["run"]
    assert step["env"]["CACHE_FILE"] == "${{ inputs.cache-file }}"
    assert "cache-file" in action["inputs"]
    assert os.access(SET_UP, os.X_OK)
    subprocess.run(["sh", "-n", SET_UP], check=True)


def test_the_short_jobs_run_the_tests_as_the_long_ones() -> None:
    """Report and folder of failures are kept under the same names."""
    (short,) = (line for line in _lines(_job(SHORT_GITHUB)) if "pytest" in line)
    (other,) = (line for line in _lines(_job(SHORT_GITLAB)) if "pytest" in line)
    assert short.split()[1:] == _test_line(_job(JOBS[0]))[3:]
    assert other.split()[1:] == short.split()[1:]
