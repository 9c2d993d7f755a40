from __future__ import annotations

from pathlib import Path

import pytest

from proxy import app
from proxy.app import create_folder, unwritable
from proxy.config.settings import Settings
from proxy.shell.models.learning import Learning


def test_a_folder_in_which_nothing_can_be_kept_stops_the_start_unless_artifacts_go_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    stated = {"upstream": {"base_url": "http://127.0.0.1:9/v1"}, "data_dir": tmp_path / "file"}
    problem = unwritable(Settings(**stated))
    assert problem is not None
    assert str(tmp_path / "file") in problem
    assert "data_dir" in problem
    assert unwritable(Settings(**stated, artifacts={"url": "s3://bucket/prefix"})) is None
    assert unwritable(Settings(**stated, artifacts={"url": f"file://{tmp_path}/elsewhere"})) is None
    assert unwritable(Settings(**{**stated, "data_dir": tmp_path / "new"})) is None


@pytest.mark.parametrize(
    ("stated", "place"),
    [
        ({}, "kept/tool-output"),
        ({"folder": "there"}, "there"),
        ({"url": "file:///there"}, "/there"),
        ({"url": "s3://bucket/prefix"}, "s3://bucket/prefix"),
    ],
)
def test_artifacts_lie_in_the_data_folder_unless_another_place_is_set(stated, place):
    settings = Settings(data_dir=Path("kept"), artifacts=stated)
    assert place in create_folder(settings).address


def test_all_applications_of_a_process_share_one_operators_api():
    assert app._operator_api() is app._operator_api()


def test_the_metrics_tell_what_is_learned_by_the_application_that_runs_and_of_every_upstream(tmp_path: Path) -> None:
    inherited = app.Inherited()
    former, *now = (Learning(tmp_path / name, "http://h/v1") for name in ("a", "b", "c"))
    for number, learning in enumerate((former, *now)):
        learning.note_prompt(f"m{number}", 1_000)
        learning.note_cut(f"m{number}", 8_192, None)
    inherited.metrics.follow([former])
    inherited.metrics.follow(now)
    told = inherited.metrics.exposed().decode()
    assert [f'model="m{number}"' in told for number in range(3)] == [False, True, True]
