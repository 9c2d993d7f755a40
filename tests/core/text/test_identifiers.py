from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.strategies import TEXTS

from proxy.core.text import most_telling, names_in, names_of_lines, utf8_length


@given(TEXTS)
@settings(deadline=None)
def test_names_are_listed_once_and_occur_in_the_text(text):
    found = names_in(text)
    assert len(set(found)) == len(found)
    assert all(name in text and 6 <= len(name) <= 80 for name in found)


def test_paths_symbols_and_urls_are_names_and_short_words_and_numbers_are_not():
    text = "see a/b/c.py:12 and parseLine or x12 at 4711, 12, https://host/x?y"
    assert names_in(text) == ("a/b/c.py:12", "parseLine", "https://host/x")


@pytest.mark.parametrize(
    "digest",
    [
        "3f2a91bc", "9df0d68a1b2c3d4e5f60718293a4b5c6d7e8f901", "b0a1c2d3-e4f5-4a6b-8c7d-9e0f1a2b3c4d",
        "tool_bash_0123456789abcdef.txt", "commit/ab12cd34ef", "sha256:0A1B2C3D4E5F",
    ],
)  # fmt: skip
def test_what_holds_a_digest_is_no_name_nor_is_a_part_of_it(digest):
    assert names_in(f"at {digest} stands parse_args") == ("stands", "parse_args")


@pytest.mark.parametrize("word", ["decade", "facades", "acceded", "file_2024", "Version2", "utf8_length"])
def test_a_word_of_the_letters_of_digests_is_a_name(word):
    assert names_in(word) == (word,)


def test_names_end_where_chinese_begins():
    text = "使用Python编写，需要处理config.yaml文件中的参数，例如parse_args函数；naïve_bayes２０２４"
    assert names_in(text) == ("Python", "config.yaml", "parse_args", "naïve_bayes")


def test_what_is_longer_than_a_name_can_be_is_data():
    assert names_in("a" * 80 + " " + "b" * 81) == ("a" * 80,)


@given(st.lists(st.text(min_size=1, max_size=9), unique=True), st.integers(-5, 90))
def test_names_cost_their_bytes_and_a_blank(names, max_bytes):
    chosen = most_telling(dict.fromkeys(names, 1), (), (), max_bytes)
    assert sum(utf8_length(name) + 1 for name in chosen) <= max(0, max_bytes)
    assert set(chosen) <= set(names)


def test_used_names_come_first_then_symbols_then_those_in_many_texts():
    spread = {"ordinary": 1, "widespread": 9, "some_symbol": 1, "used_word": 1, "src/a.py": 3, "known_one": 8}
    chosen = most_telling(spread, {"known_one"}, {"used_word"}, 1_000)
    assert chosen == ["used_word", "src/a.py", "some_symbol", "widespread", "ordinary"]


@pytest.mark.parametrize("between", [" ", "中文", " = "])
def test_no_name_is_cut_in_a_long_text(between):
    written = tuple(f"parse_args_{number}" for number in range(5_000))
    assert names_in(between.join(written)) == written


@given(
    st.lists(
        st.sampled_from(["src/main.py:1", "a", " ", "\t", "é1", "parse_args", "=", "中文", "3f2a91bc", "12/x" * 30])
    )
)
@example(["parse_args", "中文", "parse_args"])
def test_the_names_of_many_lines_are_those_of_each(words):
    lines = ["".join(words[start : start + 3]) for start in range(len(words))]
    assert names_of_lines(lines) == [set(names_in(line)) for line in lines]


def test_a_name_begins_behind_what_no_name_begins_with():
    assert names_in("12/parse_args 1parse_args ./src/main.py /3a/parse_it") == ("parse_args", "src/main.py", "parse_it")
