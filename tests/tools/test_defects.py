import pytest

from tools.defects import HasDefect, raise_defects


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "planning_failed", "level": "error"}',
        "2026-11-23 [error    ] planning_failed  request_id=1",
        'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nIndexError: tuple',
    ],
)
def test_a_log_in_which_the_proxy_fails_inside_has_a_defect(line):
    with pytest.raises(HasDefect, match=line.rpartition("\n")[2][:20].replace("[", r"\[")):
        raise_defects(f'{{"event": "listening"}}\n{line}\n')


def test_a_traceback_that_a_tool_has_written_is_no_defect():
    raise_defects('{"event": "edit", "text": "Traceback (most recent call last):\\n planning is hard"}\n')
