import os
import tempfile
from types import SimpleNamespace

import uvicorn
from structlog.testing import capture_logs
from uvicorn.supervisors import Multiprocess

from proxy import server
from proxy.config import ServerSettings, Settings
from proxy.shell.telemetry.metrics import SHARED_FOLDER


def test_workers_get_a_folder_to_count_in_and_it_goes_with_them(monkeypatch):
    monkeypatch.setenv(SHARED_FOLDER, "")  # so that what is set here is taken back
    with server._shared_counts():
        folder = os.environ[SHARED_FOLDER]
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not os.path.exists(folder)


def test_a_worker_that_starts_after_the_folder_was_deleted_makes_it_again(tmp_path, monkeypatch):
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path / "counts"))
    monkeypatch.setattr(server, "_end_when_closed", lambda pipe: None)
    monkeypatch.setattr(server.multiprocessing, "parent_process", lambda: SimpleNamespace(sentinel=-1))
    monkeypatch.setattr(server, "create_app", lambda *_: os.listdir(tmp_path))
    settings = Settings(data_dir=tmp_path, server=ServerSettings(workers=2))
    assert server._application(settings, lambda: settings, "token") == ["counts"]


def test_without_a_folder_each_worker_reports_its_own_counts_and_the_log_says_so(monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.delenv(SHARED_FOLDER, raising=False)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    with capture_logs() as log, server._shared_counts():
        assert SHARED_FOLDER not in os.environ
    assert [(line["event"], line["reason"]) for line in log] == [("metrics_not_shared", "No space left on device")]


def test_a_dead_worker_has_no_running_requests(tmp_path, monkeypatch):
    dead, alive = SimpleNamespace(pid=11), SimpleNamespace(pid=12)
    for kind in ("gauge_livesum", "counter"):
        for one in (dead, alive):
            (tmp_path / f"{kind}_{one.pid}.db").touch()
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    monkeypatch.setattr(Multiprocess, "keep_subprocess_alive", lambda _: None)
    workers = server._Workers.__new__(server._Workers)
    workers._former = []
    for workers.processes in ([dead, alive], [alive]):
        workers.keep_subprocess_alive()
    assert {path.name for path in tmp_path.iterdir()} == {"gauge_livesum_12.db", "counter_11.db", "counter_12.db"}


def test_a_start_that_cannot_work_ends_with_a_sentence(tmp_path, capsys):
    (tmp_path / "file").touch()
    settings = Settings(data_dir=tmp_path / "file", server=ServerSettings(port=0))
    assert server.serve(settings, lambda: settings) == 1
    assert capsys.readouterr().err.startswith("nothing can be kept in ")


def test_workers_that_are_slow_to_start_are_waited_for_instead_of_replaced(tmp_path, monkeypatch):
    seen: list[uvicorn.Config] = []

    class Workers:
        def __init__(self, config, sockets, *_):
            seen.append(config)
            sockets[0].close()

        def run(self):
            """Starts none."""

    monkeypatch.setenv(SHARED_FOLDER, "")  # so that what is set here is taken back
    monkeypatch.setattr(server, "_Workers", Workers)
    monkeypatch.setattr(server, "configure_logging", lambda _: None)
    settings = Settings(data_dir=tmp_path, server=ServerSettings(port=0, workers=2))
    assert server.serve(settings, lambda: settings) == 0
    assert [config.timeout_worker_healthcheck >= 30 for config in seen] == [True]
