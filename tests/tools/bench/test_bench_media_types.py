import pytest

from tools.bench import media_types


def test_files_are_counted_by_type_and_misses_are_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.gif").write_bytes(b"GIF89a\x01\0\x01\0\x80\0\0;")
    (tmp_path / "b.png").write_bytes(b"no picture")
    (tmp_path / "c.csv").write_bytes(b"a,b\n")
    (tmp_path / "left_out.py").write_bytes(b"pass\n")
    (tmp_path / "empty.gif").write_bytes(b"")
    monkeypatch.setattr("sys.argv", ["media_types", str(tmp_path), "--misses"])
    media_types.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "taken for" in line] == [
        f"{way}: {tmp_path / 'b.png'} is taken for text/plain" for way in ("bytes", "lie")
    ]
    assert lines[-2].split() == ["all", "3", "66.67%", "66.67%"]


def test_a_type_that_bytes_do_not_reveal_counts_as_text():
    assert media_types.right("text/csv", "text/plain")
    assert not media_types.right("application/json", "text/plain")
    assert not media_types.right("text/csv", "image/png")


def test_a_folder_is_needed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["media_types"])
    with pytest.raises(SystemExit):
        media_types.main()
    assert "folders" in capsys.readouterr().err
