from proxy import app
from proxy.shell.models import Learning


def test_the_metrics_show_what_the_running_application_learned_for_every_upstream(tmp_path):
    inherited = app.Inherited()
    former, *now = (Learning(tmp_path / name, "http://h/v1") for name in ("a", "b", "c"))
    for number, learning in enumerate((former, *now)):
        learning.note_prompt(f"m{number}", 1_000)
        learning.note_cut(f"m{number}", 8_192, None)
    inherited.metrics.learning = [former]
    inherited.metrics.learning = now
    reported = inherited.metrics.exposed().decode()
    assert [f'model="m{number}"' in reported for number in range(3)] == [False, True, True]
