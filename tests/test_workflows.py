"""The workflows run the same commands as developers, with actions pinned to commits."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()


def workflow(path):
    loaded: dict[str, Any] = yaml.load(path.read_text(), yaml.BaseLoader)  # texts only; else `on` is true
    return loaded


def jobs():
    for path in FILES:
        for name, job in workflow(path)["jobs"].items():
            if "uses" in job:
                continue  # the steps are those of the called workflow
            yield pytest.param(job, id=f"{path.stem}-{name}")


def test_there_is_one_for_changes_releases_images_and_locks():
    assert [path.stem for path in FILES] == ["ci", "image", "lock", "release"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_its_commit_and_says_which_version_that_is(path):
    used = re.findall(r"uses: (?!\./)(.+)$", path.read_text(), re.MULTILINE)
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w/.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_an_action_has_one_version_everywhere():
    text = "".join(path.read_text() for path in FILES)
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r"uses: ([^@\s]+)@(\S+)", text):
        versions.setdefault(name, set()).add(version)
    assert [name for name, found in versions.items() if len(found) > 1] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_says_more(path):
    assert workflow(path)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("job", list(jobs()))
def test_every_job_ends_in_time_and_keeps_no_credentials_it_does_not_need(job):
    assert 0 < int(job["timeout-minutes"]) <= 60
    for step in job["steps"]:
        if "actions/checkout" in step.get("uses", "") and job.get("permissions", {}).get("contents") != "write":
            assert step["with"]["persist-credentials"] == "false"


@pytest.mark.parametrize("job", list(jobs()))
def test_no_text_of_an_event_becomes_a_part_of_a_script(job):
    assert [step["run"] for step in job["steps"] if "${{" in step.get("run", "")] == []


def test_what_is_called_exists():
    text = "".join(path.read_text() for path in FILES)
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    called = set(re.findall(r"\bmake ([a-z]+)", text.replace("`make lock`", "")))
    assert {"docs", "validate", "fronts", "lock"} <= called <= targets
    scripts = set(re.findall(r"(?:\.ci|deploy)/[\w.]+", text))
    assert scripts
    assert [script for script in scripts if not (ROOT / script).exists()] == []


def test_changes_are_tried_on_every_python_that_the_package_names():
    tried = workflow(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    project = (ROOT / "pyproject.toml").read_text()
    assert tried == re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert f'requires-python = ">={tried[0]}"' in project


def test_only_the_publishing_job_may_request_an_index_token():
    publish = workflow(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert [step.get("uses", step.get("run")).partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "rm dist/run.lock",
        "pypa/gh-action-pypi-publish",
    ]
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_nothing_is_published_before_the_wheel_ran_on_each_python():
    jobs = workflow(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    stated = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == stated
    assert (jobs["wheel"]["needs"], jobs["image"]["needs"], jobs["publish"]["needs"]) == ("build", "wheel", "wheel")
    image = workflow(ROOT / ".github" / "workflows" / "image.yml")
    assert (set(image["on"]), image["on"]["push"]) == ({"push", "workflow_call"}, {"branches": ["main"]})
    assert jobs["image"]["permissions"] == image["jobs"]["image"]["permissions"]
