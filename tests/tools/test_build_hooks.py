import hashlib

import pytest

from proxy.shell.models.tokenizer import _VOCABULARIES
from tools import build_hooks


def test_what_is_copied_is_what_the_tokenizer_looks_for(tmp_path):
    build_hooks.copy_vocabularies(tmp_path)
    copied = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    assert copied == {vocabulary.file_name: vocabulary.sha256 for vocabulary in _VOCABULARIES.values()}


def test_a_complete_folder_needs_no_package(tmp_path, monkeypatch):
    build_hooks.copy_vocabularies(tmp_path)
    monkeypatch.setattr(build_hooks, "_packaged", lambda name: pytest.fail("the package was asked"))
    build_hooks.copy_vocabularies(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_file_is_replaced(tmp_path):
    build_hooks.copy_vocabularies(tmp_path)
    damaged = min(tmp_path.iterdir())
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:1000])
    build_hooks.copy_vocabularies(tmp_path)
    assert damaged.read_bytes() == whole


def test_contents_that_are_not_of_tiktoken_stop_the_build(tmp_path, monkeypatch):
    monkeypatch.setattr(build_hooks, "_packaged", lambda name: b"IQ== 0\n")
    with pytest.raises(ValueError, match="not the one of tiktoken"):
        build_hooks.copy_vocabularies(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_hook_fills_the_folder_and_names_it_to_the_build(tmp_path):
    build_data = {"artifacts": []}
    hook = build_hooks.VocabularyHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    hook.initialize("standard", build_data)
    assert build_data == {"artifacts": ["/proxy/vocabulary/*", "/proxy/catalogue/index.json.gz"]}
    assert (tmp_path / "proxy" / "catalogue" / "index.json.gz").stat().st_size > 50_000
    assert len(list((tmp_path / "proxy" / "vocabulary").iterdir())) == 2
