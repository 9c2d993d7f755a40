"""Bodies of chat requests in any spelling, as pieces, and bodies of later requests of the same conversation."""

from __future__ import annotations

from hypothesis import strategies as st

from support.json_bytes import BLANKS, MESSAGE_LISTS, MESSAGES, STRINGS, VALUES, spelled_array, spelled_object

MEMBERS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([b'"model"', b'"stream"', b'"tools"', b'"x"']), VALUES), st.tuples(STRINGS, VALUES)
    ),
    max_size=3,
)
NEXT_MESSAGES = st.lists(MESSAGES, max_size=3)
MESSAGES_NAMES = st.sampled_from([b'"messages"'] * 8 + [b'"\\u006dessages"', b'"mess\\u0061ges"'])


@st.composite
def bodies(draw, lists=MESSAGE_LISTS):
    """The pieces of a body: members before, the name, the messages, members after, and the blank between all."""
    return [draw(MEMBERS), draw(MESSAGES_NAMES), draw(lists), draw(MEMBERS), draw(BLANKS)]


def joined(pieces):
    before, name, items, after, blank = pieces
    return spelled_object([*before, (name, spelled_array(items, blank)), *after], blank)


@st.composite
def next_bodies(draw, pieces):
    """The body of a later request: every piece may be changed, cut, doubled or left alone."""
    before, name, items, after, blank = pieces
    items = list(items)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(items)))
        match draw(st.sampled_from(["append", "append", "insert", "remove", "change", "cut"])):
            case "append":
                items += draw(NEXT_MESSAGES)
            case "insert":
                items.insert(at, draw(MESSAGES))
            case "remove":
                del items[at : at + 1]
            case "change":
                items[at : at + 1] = [draw(MESSAGES)]
            case _:
                del items[at:]
    if draw(st.booleans()):
        after = draw(MEMBERS)
    if draw(st.integers(0, 3)) == 0:
        before = draw(MEMBERS)
    if draw(st.integers(0, 5)) == 0:  # the same name once more, perhaps in another spelling
        name_again = draw(st.sampled_from([b'"messages"', b'"\\u006dessages"', b'"model"']))
        after = [*after, (name_again, draw(st.sampled_from([spelled_array(items[:1]), b"[]", b"null", b"1"])))]
    if draw(st.integers(0, 5)) == 0:
        blank = draw(BLANKS)
    body = joined([before, name, items, after, blank])
    if draw(st.integers(0, 7)) == 0:  # broken in any place
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.sampled_from([b"", b",", b"]", b"}", b"\xff", b'"', b"NaN"])) + body[at + 1 :]
    return body
