"""Bodies of requests waiting for a response: in memory up to a limit, then in files."""

import asyncio
import threading

import pytest
from support.waiting import PATIENCE_SECONDS, until

from proxy.shell.resources import Kept, TooSlow, WaitingRoom, Workload
from proxy.shell.resources import waiting as module

SMALL = 16 * 1024
LARGE = SMALL + 1


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


def kept(room, whose, *parts):
    found = Kept(room, Workload().share())
    found.whose = whose
    found.hold(*parts)
    return found


async def away(found):
    while not found.is_away:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)


async def test_the_largest_of_who_keeps_most_goes_first_and_the_longest_waiting_of_equals(tmp_path):
    room = WaitingRoom(7 * LARGE, tmp_path)
    one = kept(room, "one", Text("alone", 3 * LARGE))
    many = [kept(room, "many", Text(number, LARGE * (2 if number == 1 else 1))) for number in range(4)]
    for each in (one, *many):
        await each.rest()
    assert [each.is_away for each in (one, *many)] == [False, False, True, False, False]
    await kept(room, "many", Text("more")).rest()
    assert [each.is_away for each in (one, *many)] == [False, False, True, False, False]
    await kept(room, "many", Text("more")).rest()
    assert [each.is_away for each in (one, *many)] == [False, True, True, False, False]
    assert (room.waiting.requests, room.waiting.in_files, room.waiting.memory_bytes) == (7, 2, 7 * LARGE)
    for each in (one, *many):
        each.close()


async def test_what_comes_back_has_its_contents_and_leaves_nothing_behind(tmp_path):
    room = WaitingRoom(0, tmp_path / "made when needed")
    text, other = Text({"a": (1, b"x")}), Text("b")
    found = kept(room, "a", text, other, text)
    await found.rest()
    assert (text.text, other.text, found.is_away) == (None, None, True)
    assert room.waiting.file_bytes > 0
    assert await found.back()
    assert await found.back()
    assert (text.text, other.text, found.is_away) == ({"a": (1, b"x")}, "b", False)
    assert room.waiting == (0, 0, 0, 0)
    await found.rest()
    found.close()
    assert room.waiting == (0, 0, 0, 0)


async def test_small_ones_and_those_that_are_over_are_left_where_they_are(tmp_path):
    room = WaitingRoom(0, tmp_path)
    small, over = kept(room, "a", Text("small", SMALL)), kept(room, "a", Text("over"))
    over.drop()
    for each in (small, over):
        await each.rest()
    assert (small.is_away, room.waiting.requests) == (False, 0)
    assert await small.back()


async def test_what_is_dropped_while_it_is_written_leaves_no_file(tmp_path):
    room = WaitingRoom(0, tmp_path)
    found = kept(room, "a", Text("x"))
    resting = asyncio.create_task(found.rest())
    await away(found)
    found.drop()
    await resting
    assert room.waiting == (0, 0, 0, 0)
    assert not any(tmp_path.iterdir())


async def test_what_comes_back_while_it_is_written_waits_for_that(tmp_path):
    room = WaitingRoom(0, tmp_path)
    text = Text("x")
    found = kept(room, "a", text)
    resting = asyncio.create_task(found.rest())
    await away(found)
    assert await found.back()
    await resting
    assert (text.text, found.is_away) == ("x", False)


async def test_who_makes_room_may_leave_and_the_other_still_comes_back(tmp_path):
    room = WaitingRoom(LARGE, tmp_path)
    first, second = Text("first"), kept(room, "a", Text("second"))
    waiting = kept(room, "a", first)
    await waiting.rest()
    leaving = asyncio.create_task(second.rest())
    await away(waiting)
    leaving.cancel()
    assert await waiting.back()
    assert first.text == "first"


class HeldDisk:
    """A disk whose writing waits for an event."""

    def __init__(self, monkeypatch):
        self.may_go_on = threading.Event()
        self.writings: list[object] = []
        self._write = module._written
        monkeypatch.setattr("proxy.shell.resources.waiting._written", self.written)

    def written(self, folder, contents):
        self.writings.append(contents)
        assert self.may_go_on.wait(PATIENCE_SECONDS)
        return self._write(folder, contents)


async def test_a_body_that_is_being_written_is_not_written_again_when_who_made_room_has_left(tmp_path, monkeypatch):
    disk, room = HeldDisk(monkeypatch), WaitingRoom(LARGE, tmp_path)
    texts = [Text("first"), Text("second"), Text("third")]
    first, second, third = (kept(room, "a", text) for text in texts)
    await first.rest()
    leaving = asyncio.create_task(second.rest())
    await away(first)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    second.close()
    resting = asyncio.create_task(third.rest())
    await asyncio.sleep(0)  # it waits for room now
    disk.may_go_on.set()
    await resting
    assert await first.back()
    assert await third.back()
    assert [text.text for text in texts] == ["first", "second", "third"]
    assert disk.writings == [["first"]]
    assert room.waiting == (0, 0, 0, 0)


async def test_those_that_make_room_at_once_write_one_body_at_a_time_and_each_once(tmp_path, monkeypatch):
    disk, room = HeldDisk(monkeypatch), WaitingRoom(LARGE, tmp_path)
    texts = [Text(number) for number in range(4)]
    waiting = [kept(room, "a", text) for text in texts]
    resting = [asyncio.create_task(each.rest()) for each in waiting]
    await until(lambda: bool(disk.writings))
    assert disk.writings == [[0]]
    disk.may_go_on.set()
    await asyncio.gather(*resting)
    assert sorted(disk.writings) == [[0], [1], [2]]
    assert [await each.back() for each in waiting] == [True] * 4
    assert [text.text for text in texts] == [0, 1, 2, 3]


async def test_a_client_that_leaves_while_its_body_comes_back_leaves_nothing_behind(tmp_path, monkeypatch):
    begun, read = threading.Event(), module._read
    may_go_on = threading.Event()

    def slowly(file):
        begun.set()
        assert may_go_on.wait(PATIENCE_SECONDS)
        return read(file)

    monkeypatch.setattr("proxy.shell.resources.waiting._read", slowly)
    room = WaitingRoom(0, tmp_path)
    found = kept(room, "a", Text("x"))
    await found.rest()
    coming = asyncio.create_task(found.back())
    await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)
    found.close()
    may_go_on.set()
    assert room.waiting == (0, 0, 0, 0)


def never(*_):
    raise TooSlow("no answer in 5 s")


def unpicklable(*_):
    return lambda: None


@pytest.mark.parametrize("content", [unpicklable(), "a text"], ids=["no pickle", "no file"])
async def test_what_cannot_be_written_is_lost_and_counted(tmp_path, content):
    (tmp_path / "file").write_bytes(b"")
    lost: list[bool] = []
    room = WaitingRoom(0, tmp_path if callable(content) else tmp_path / "file", lambda: lost.append(True))
    found = kept(room, "a", Text(content))
    await found.rest()
    assert not await found.back()
    assert (lost, room.waiting) == ([True], (0, 0, 0, 0))


async def test_a_dead_disk_is_not_waited_for_again_and_again(tmp_path, monkeypatch):
    lost: list[bool] = []
    room = WaitingRoom(0, tmp_path, lambda: lost.append(True))
    monkeypatch.setattr("proxy.shell.resources.waiting._written", never)
    await kept(room, "a", Text("x")).rest()
    monkeypatch.undo()
    await (second := kept(room, "a", Text("y"))).rest()
    assert not await second.back()
    assert len(lost) == 2
    monkeypatch.setattr("proxy.shell.resources.waiting.time.monotonic", lambda: room._dead_until)
    await (third := kept(room, "a", Text("z"))).rest()
    assert await third.back()


async def test_a_request_takes_no_workload_while_it_waits_and_its_own_part_when_it_comes_back(tmp_path):
    workload = Workload(100, small_bytes=0)
    share = workload.share()
    await workload.take(share, 90)
    found = Kept(WaitingRoom(0, tmp_path), share)
    found.hold(Text("x"))
    await found.rest()
    assert share.held_bytes == 0
    assert await found.back()
    assert share.held_bytes == 90
