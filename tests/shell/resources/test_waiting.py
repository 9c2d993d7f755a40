"""Bodies of requests waiting for a response: as they are up to a limit, then compressed, then let go."""

import asyncio
import threading

from support.waiting import PATIENCE_SECONDS, until

from proxy.shell.resources import Kept, Share, WaitingRoom, Workload
from proxy.shell.resources import waiting as module

SMALL = 16 * 1024
LARGE = SMALL + 1
HALF = LARGE // 2
"""Room for dozens that are compressed, and for none that is not."""


class Text:
    """A part that keeps one text."""

    def __init__(self, text, held_bytes=LARGE):
        self.text: object = text
        self.held_bytes = held_bytes

    def set_aside(self):
        text, self.text = self.text, None
        return text

    def put_back(self, content):
        self.text = content


def kept(room, *parts):
    found = Kept(room, Share(Workload()))
    found.hold(*parts)
    return found


async def away(found):
    while not found.is_away:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)


async def test_past_the_limit_the_longest_waiting_are_compressed():
    room = WaitingRoom(3 * LARGE)
    many = [kept(room, Text(str(number))) for number in range(5)]
    for each in many:
        await each.rest()
    assert [each.is_away for each in many] == [True, True, True, False, False]
    assert (room.waiting.requests, room.waiting.compressed) == (5, 3)
    assert 2 * LARGE < room.waiting.memory_bytes <= 3 * LARGE
    assert [await each.back() for each in many] == [True] * 5


async def test_past_it_again_the_longest_waiting_is_let_go_and_counted():
    lost: list[bool] = []
    random = [bytes(range(256)) * 3, b"b" * 100, b"c" * 100]
    room = WaitingRoom(200, lambda: lost.append(True))
    many = [kept(room, Text(text)) for text in random]
    for each in many:
        await each.rest()
    assert [await each.back() for each in many] == [False, True, True]
    assert (lost, room.waiting) == ([True], (0, 0, 0))


async def test_what_comes_back_has_its_contents_and_leaves_nothing_behind():
    room = WaitingRoom(HALF)
    text, other = Text({"a": (1, b"x")}), Text("b")
    found = kept(room, text, other, text)
    await found.rest()
    assert (text.text, other.text, found.is_away) == (None, None, True)
    assert 0 < room.waiting.memory_bytes < HALF
    assert await found.back()
    assert await found.back()
    assert (text.text, other.text, found.is_away) == ({"a": (1, b"x")}, "b", False)
    assert room.waiting == (0, 0, 0)
    await found.rest()
    found.close()
    assert room.waiting == (0, 0, 0)


async def test_small_ones_and_those_that_are_over_are_left_as_they_are():
    room = WaitingRoom(0)
    small, over = kept(room, Text("small", SMALL)), kept(room, Text("over"))
    over.drop()
    for each in (small, over):
        await each.rest()
    assert (small.is_away, room.waiting.requests) == (False, 0)
    assert await small.back()


async def test_the_memory_of_a_large_one_is_given_back_when_it_will_not_be_sent_again():
    room = WaitingRoom()
    text = Text("x")
    found = kept(room, text)
    await found.rest()
    found.wake()
    found.drop()
    assert (text.text, room.waiting) == (None, (0, 0, 0))


async def test_what_rests_again_without_having_been_woken_is_counted_once():
    room = WaitingRoom()
    found = kept(room, Text("x"))
    await found.rest()
    await found.rest()
    assert room.waiting == (1, 0, LARGE)
    found.close()
    assert room.waiting == (0, 0, 0)


class HeldThread:
    """Compression that waits for an event."""

    def __init__(self, monkeypatch):
        self.may_go_on = threading.Event()
        self.packings: list[object] = []
        self._pack = module._packed
        monkeypatch.setattr("proxy.shell.resources.waiting._packed", self.packed)

    def packed(self, contents):
        self.packings.append(contents)
        assert self.may_go_on.wait(PATIENCE_SECONDS)
        return self._pack(contents)


async def test_what_is_dropped_while_it_is_compressed_leaves_nothing_behind(monkeypatch):
    thread, room = HeldThread(monkeypatch), WaitingRoom(HALF)
    found = kept(room, Text("x"))
    resting = asyncio.create_task(found.rest())
    await away(found)
    found.drop()
    thread.may_go_on.set()
    await resting
    assert (room.waiting, found.packed) == ((0, 0, 0), None)


async def test_what_comes_back_while_it_is_compressed_waits_for_that(monkeypatch):
    thread, room = HeldThread(monkeypatch), WaitingRoom(HALF)
    text = Text("x")
    found = kept(room, text)
    resting = asyncio.create_task(found.rest())
    await away(found)
    returning = asyncio.create_task(found.back())
    await asyncio.sleep(0)
    thread.may_go_on.set()
    assert await returning
    await resting
    assert (text.text, found.is_away, room.waiting) == ("x", False, (0, 0, 0))


async def test_a_body_is_compressed_once_although_who_made_room_has_left(monkeypatch):
    thread, room = HeldThread(monkeypatch), WaitingRoom(LARGE + HALF)
    texts = [Text("first"), Text("second"), Text("third")]
    first, second, third = (kept(room, text) for text in texts)
    await first.rest()
    leaving = asyncio.create_task(second.rest())
    await away(first)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    second.close()
    resting = asyncio.create_task(third.rest())
    await asyncio.sleep(0)
    thread.may_go_on.set()
    await resting
    assert await first.back()
    assert await third.back()
    assert [text.text for text in texts] == ["first", "second", "third"]
    assert thread.packings == [["first"]]
    assert room.waiting == (0, 0, 0)


async def test_those_that_make_room_at_once_compress_one_at_a_time_and_each_once(monkeypatch):
    thread, room = HeldThread(monkeypatch), WaitingRoom(LARGE + HALF)
    texts = [Text(number) for number in range(4)]
    waiting = [kept(room, text) for text in texts]
    resting = [asyncio.create_task(each.rest()) for each in waiting]
    await until(lambda: bool(thread.packings))
    assert thread.packings == [[0]]
    thread.may_go_on.set()
    await asyncio.gather(*resting)
    assert sorted(thread.packings) == [[0], [1], [2]]
    assert [await each.back() for each in waiting] == [True] * 4
    assert [text.text for text in texts] == [0, 1, 2, 3]


async def test_a_client_that_leaves_while_its_body_comes_back_leaves_nothing_behind(monkeypatch):
    begun, may_go_on, unpack = threading.Event(), threading.Event(), module._unpacked

    def slowly(packed):
        begun.set()
        assert may_go_on.wait(PATIENCE_SECONDS)
        return unpack(packed)

    monkeypatch.setattr("proxy.shell.resources.waiting._unpacked", slowly)
    room = WaitingRoom(HALF)
    found = kept(room, Text("x"))
    await found.rest()
    coming = asyncio.create_task(found.back())
    await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)
    found.close()
    may_go_on.set()
    assert room.waiting == (0, 0, 0)


async def test_what_cannot_be_compressed_is_lost_and_counted():
    lost: list[bool] = []
    room = WaitingRoom(HALF, lambda: lost.append(True))
    found = kept(room, Text(lambda: None))
    await found.rest()
    assert not await found.back()
    assert (lost, room.waiting) == ([True], (0, 0, 0))


async def test_a_request_takes_no_workload_while_it_waits_and_its_own_part_when_it_comes_back():
    workload = Workload(100, small_bytes=0)
    share = Share(workload)
    await share.take(90)
    found = Kept(WaitingRoom(HALF), share)
    found.hold(Text("x"))
    await found.rest()
    assert share.held_bytes == 0
    assert await found.back()
    assert share.held_bytes == 90
