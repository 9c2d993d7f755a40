"""Replacement text of artifacts: found for the request's tenant, bounded, and only of the latest requests."""

import pytest

from proxy.core.artifact import Artifact
from proxy.core.content_types import ContentKind, MediaType
from proxy.core.conversation import Carried, Content, Edit, Parts, Reason, Route, Shown, Words
from proxy.shell.artifacts import Replacements

MINE, OTHERS = "5eed", "0123"
REQUESTS, BYTES, REQUEST_BYTES = 200, 16 * 2**20, 4 * 2**20
LOG, GONE = Artifact(b"a long log\n", "Bash"), Artifact(b'{"messages":[]}', suffix="json")


def cut(becomes, artifact=LOG, reason=Reason.TRUNCATE_TOOL_OUTPUT):
    return Edit(3, (), becomes, reason, artifact)


@pytest.fixture
def kept():
    return Replacements()


def test_replacement_text_is_found_only_for_the_requests_tenant(kept):
    kept.add("r", MINE, [cut("an excerpt")], [LOG])
    assert kept.find("r", MINE, LOG.id) == "an excerpt"
    assert kept.find("r", OTHERS, LOG.id) is None
    assert kept.find("another", MINE, LOG.id) is None
    assert kept.find("r", MINE, GONE.id) is None


def test_two_tenants_may_use_one_id_and_who_may_read_all_gets_the_newest(kept):
    kept.add("r", MINE, [cut("mine")], [LOG])
    kept.add("r", OTHERS, [cut("theirs")], [LOG])
    assert [kept.find("r", one, LOG.id) for one in (MINE, OTHERS, None)] == ["mine", "theirs", "theirs"]
    assert kept.find("s", None, LOG.id) is None


def test_omitted_messages_are_replaced_by_the_note_and_not_by_an_excerpt(kept):
    note = cut("2 messages are left out\nthe result", GONE, Reason.OMISSION_NOTE)
    kept.add("r", MINE, [cut("an excerpt"), note], [GONE, LOG])
    assert kept.find("r", MINE, GONE.id) == "2 messages are left out\nthe result"
    assert kept.find("r", MINE, LOG.id) == "an excerpt"


PNG = MediaType("image/png", ContentKind.IMAGE, "png")
PARTS = Parts((Words("[cannot read] a.mp3"), Shown(Route.IMAGE, PNG, b"bytes"), Carried(b'{"type":"text"}')))
ROUTED = "[cannot read] a.mp3\n[image: image/png]\n[a part that stays as it came]"


@pytest.mark.parametrize(
    ("edits", "found"),
    [
        pytest.param([cut("an excerpt"), cut("one line", reason=Reason.OLD_RESULT)], "one line", id="the last edit"),
        pytest.param([cut(None, reason=Reason.OLD_REASONING)], "", id="nothing of what is taken out for good"),
        pytest.param([cut(PARTS, reason=Reason.ROUTE_MEDIA)], ROUTED, id="media are named and not shown"),
    ],
)
def test_what_is_sent_of_a_place_is_its_replacement(kept, edits, found):
    kept.add("r", MINE, edits, [LOG])
    assert kept.find("r", MINE, LOG.id) == found


def test_a_request_that_nothing_was_taken_out_of_is_not_remembered(kept):
    kept.add("first", MINE, [cut("an excerpt")], [LOG])
    for number in range(REQUESTS):
        kept.add(f"r-{number}", MINE, [cut("clean text", None, Reason.SANITISE)], [])
    assert kept.find("first", MINE, LOG.id) == "an excerpt"


def test_only_the_latest_requests_are_remembered(kept):
    for number in range(REQUESTS + 1):
        kept.add(f"r-{number}", MINE, [cut("an excerpt")], [LOG])
    assert kept.find("r-0", MINE, LOG.id) is None
    assert kept.find("r-1", MINE, LOG.id) == "an excerpt"


@pytest.mark.parametrize("letter", ["x", "é"])
def test_the_memory_is_bounded_and_one_large_request_pushes_out_no_others(kept, letter):
    long = letter * (500_000)
    for number in range(100):
        kept.add(f"r-{number}", MINE, [cut(long)], [LOG])
    held = [kept.find(f"r-{number}", MINE, LOG.id) for number in range(100)]
    assert 4 * 500_000 < sum(len(text) for text in held if text) <= BYTES
    kept.add("huge", MINE, [cut(letter * (REQUEST_BYTES + 1))], [LOG])
    assert kept.find("huge", MINE, LOG.id) is None
    assert kept.find("r-99", MINE, LOG.id) == long


@pytest.mark.parametrize(("artifacts", "read"), [(1, 1), (1_000, 39)])
def test_words_about_a_thousand_images_are_not_read_for_each_of_them(kept, artifacts, read, monkeypatch):
    described: list[Content] = []
    monkeypatch.setattr("proxy.shell.artifacts.tools.in_words", lambda content: described.append(content) or content)
    taken = [Artifact(b"%d" % (number % artifacts), "Read") for number in range(1_000)]
    kept.add("r", MINE, [cut("an image. " * 10_240, artifact) for artifact in taken], taken)
    assert len(described) == read
    assert (kept.find("r", MINE, taken[0].id) is None) == (artifacts > 1)
