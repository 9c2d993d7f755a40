from __future__ import annotations

import threading
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.models.counted_pieces import PIECE_CHARACTERS, CountedPieces, pieces

TEXTS = st.lists(st.sampled_from(["a" * 400, "\n", "\r\n", " ", "\t", "/", "}", "b", "é", "\u2028"]), max_size=40).map(
    "".join
)


class Counting:
    """Counts characters, and remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def __call__(self, text: str) -> int:
        self.given.append(text)
        return len(text)


@given(TEXTS)
def test_pieces_put_together_are_the_text_and_begin_in_a_line_of_ascii(text):
    found = list(pieces(text))
    assert "".join(found) == text
    assert all(len(piece) >= PIECE_CHARACTERS for piece in found[:-1])
    for before, piece in pairwise(found):
        assert before.endswith("\n")
        assert piece.lstrip(" \t")[0] in "ab}"


def test_a_piece_that_was_counted_is_not_counted_again():
    counting = Counting()
    counted = CountedPieces(counting)
    text = "".join(f"{number:05} a line of a log\n" for number in range(400))
    assert counted.count(text) == len(text)
    assert "".join(counting.given) == text
    longer = text + "one line more\n"
    counting.given.clear()
    assert counted.count(longer) == len(longer)
    assert len("".join(counting.given)) < PIECE_CHARACTERS + 100
    counting.given.clear()
    assert counted.count(longer) == len(longer)
    assert counting.given == []


def test_what_differs_in_one_character_is_counted_anew():
    counting = Counting()
    counted = CountedPieces(counting)
    for text in ("a" * 5_000, "a" * 4_999 + "b", "a" * 5_000):
        counted.count(text)
    assert counting.given == ["a" * 5_000, "a" * 4_999 + "b"]


def test_half_a_surrogate_pair_is_counted_like_any_character():
    assert CountedPieces(len).count("\ud800" * 3_000) == 3_000


def test_threads_count_alike():
    texts = ["".join(f"{start + number:07} a line\n" for number in range(600)) for start in range(40)]
    counted, wrong = CountedPieces(len), list[str]()

    def count() -> None:
        wrong.extend(text for text in texts if counted.count(text) != len(text))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
