from __future__ import annotations

import mmap
import subprocess
import sys
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.resources import shared_table
from proxy.shell.resources.shared_table import ENTRIES, KEY_BYTES, SharedTable

figures = st.integers(0, 2**32 - 1)
keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)


def key(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=KEY_BYTES).digest()


@given(st.dictionaries(keys, st.tuples(figures, figures, figures), max_size=20))
def test_whatever_is_found_was_written_under_that_key(written):
    table = SharedTable()
    for at, found in written.items():
        table.put(at, *found)
        assert table.get(at) == found
    for at, found in written.items():
        assert table.get(at) in (found, None)


def test_what_was_never_written_is_not_found():
    assert SharedTable().get(key("other")) is None
    assert SharedTable().get(bytes(KEY_BYTES)) is None


def test_figures_that_do_not_fit_are_left_out():
    table = SharedTable()
    table.put(key("large"), 1, 2**32)
    assert table.get(key("large")) is None


def test_an_entry_that_another_worker_is_writing_is_not_found():
    memory = mmap.mmap(-1, ENTRIES * 32)
    table = SharedTable(memory)
    table.put(key("text"), 1, 2, 3)
    at = memory.find(key("text"))
    for position in range(at, at + 32):
        kept = memory[position]
        memory[position] ^= 1
        assert table.get(key("text")) is None, position - at
        memory[position] = kept
    assert table.get(key("text")) == (1, 2, 3)


def test_an_entry_gives_way_to_another_in_its_place():
    table, one = SharedTable(), key("one")
    other = one[:4] + key("other")[4:]
    table.put(one, 1)
    table.put(other, 2)
    assert (table.get(one), table.get(other)) == (None, (2, 0, 0))


def test_processes_share_what_a_folder_holds(tmp_path):
    SharedTable.create(tmp_path)
    here = SharedTable.shared(str(tmp_path))
    here.put(key("from here"), 7, 8, 9)
    code = (
        "import sys; from proxy.shell.resources.shared_table import SharedTable as T; t = T.shared(sys.argv[1]);"
        "print(t.get(bytes.fromhex(sys.argv[2]))); t.put(bytes.fromhex(sys.argv[3]), 4)"
    )
    given_to_it = [str(tmp_path), key("from here").hex(), key("from there").hex()]
    told = subprocess.run([sys.executable, "-c", code, *given_to_it], capture_output=True, text=True, check=True)
    assert told.stdout == "(7, 8, 9)\n"
    assert here.get(key("from there")) == (4, 0, 0)


@pytest.mark.parametrize("folder", [None, "missing", "short"])
def test_without_a_whole_table_there_is_none(tmp_path, folder):
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / shared_table._FILE_NAME).write_bytes(b"x")
    assert SharedTable.shared(folder and str(tmp_path / folder)) is None


def test_it_is_made_only_once(tmp_path):
    SharedTable.create(tmp_path)
    with pytest.raises(FileExistsError):
        SharedTable.create(tmp_path)
