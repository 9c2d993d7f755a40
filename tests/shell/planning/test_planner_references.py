import asyncio
import json
import threading

from support.planners import planner
from support.strategies import exchange, user

from proxy.core.compaction import plan
from proxy.core.conversation import Fetched, FetchError, Unfetched
from proxy.wire.chat_completions import CHAT_COMPLETIONS

TENANT = b"owner"
FETCHED = Fetched(b"\x89PNG", "image/png", "a.png")


class Lookup:
    """A resolver with given outcomes that records the queried addresses."""

    def __init__(self, **found):
        self.found = {address(name): outcome for name, outcome in found.items()}
        self.calls: list[list[str]] = []

    def may_refer(self, body, known_bytes, _):
        return body.find(b"http", known_bytes) >= 0

    async def resolve(self, references, tenant):
        assert tenant == TENANT.hex()
        wanted = [reference.address for reference in references]
        self.calls.append(wanted)
        return {one: self.found[one] for one in wanted if one in self.found}


def address(name):
    return f"https://example.org/{name}"


def looking(lookup, window=100000):
    made = planner(window)
    made._lookup = lookup
    return made


def pictures(*names):
    return user([{"type": "image_url", "image_url": {"url": address(name)}} for name in names])


def body(*messages):
    return json.dumps({"model": "m", "messages": messages}).encode()


LONG = exchange(["line\n" * 1_500])


async def test_what_the_messages_name_is_looked_up_once_and_known_in_the_next_turn():
    lookup = Lookup(a=FETCHED, b=Unfetched(FetchError.NOT_FOUND))
    one = looking(lookup)
    history = [pictures("a"), *LONG]
    first = await one.plan(CHAT_COMPLETIONS, TENANT, body(*history), looking_up=True)
    assert first.resolved == {address("a"): FETCHED}
    again = await one.plan(CHAT_COMPLETIONS, TENANT, body(*history, pictures("a")), looking_up=True)
    assert (again.resolved, lookup.calls) == (first.resolved, [[address("a")]])
    later = await one.plan(CHAT_COMPLETIONS, TENANT, body(*history, pictures("a"), pictures("b", "c")), looking_up=True)
    assert lookup.calls[1:] == [[address("b"), address("c")]]
    assert later.resolved == {address("a"): FETCHED, address("b"): Unfetched(FetchError.NOT_FOUND)}


async def test_every_plan_for_a_request_knows_what_the_first_one_knew():
    lookup = Lookup(a=FETCHED)
    one = looking(lookup)
    planned = await one.plan(CHAT_COMPLETIONS, TENANT, body(pictures("a"), *LONG), looking_up=True)
    terms = planned.inputs.terms
    assert (await one.again(planned, terms._replace(goal_tokens=1_000))).resolved == planned.resolved
    assert (await one.again(planned, terms._replace(keeping=False))).resolved == planned.resolved
    assert len(lookup.calls) == 1


async def test_observing_requests_nothing():
    lookup = Lookup(a=FETCHED)
    planned = await looking(lookup).plan(CHAT_COMPLETIONS, TENANT, body(pictures("a")))
    assert (planned.resolved, lookup.calls) == ({}, [])


async def test_a_request_that_names_nothing_is_not_read_twice(monkeypatch):
    lookup, read = Lookup(), []
    monkeypatch.setattr("proxy.shell.planning.planner._new_references", lambda *given: read.append(given) or [])
    await looking(lookup).plan(CHAT_COMPLETIONS, TENANT, body(user("hello"), *LONG), looking_up=True)
    assert (lookup.calls, read) == ([], [])


async def test_another_tenant_looks_for_itself():
    seen: list[str] = []

    class PerTenant(Lookup):
        async def resolve(self, references, tenant):
            seen.append(tenant)
            return {}

    one = looking(PerTenant())
    raw = body(pictures("a"), *LONG)
    await asyncio.gather(*(one.plan(CHAT_COMPLETIONS, tenant, raw, looking_up=True) for tenant in (b"a", b"b")))
    assert sorted(seen) == [b"a".hex(), b"b".hex()]


async def test_contents_are_put_in_off_the_event_loop(monkeypatch):
    """Base64 of many megabytes takes longer than the loop may be held."""
    threads: list[int] = []

    def seen(*given):
        threads.append(threading.get_ident())
        return plan(*given)

    monkeypatch.setattr("proxy.shell.planning.planner.plan", seen)
    one = looking(Lookup(a=FETCHED))
    history = [user("hello"), *LONG]
    await one.plan(CHAT_COMPLETIONS, TENANT, body(*history), looking_up=True)
    await one.plan(CHAT_COMPLETIONS, TENANT, body(*history, user("short")), looking_up=True)
    await one.plan(CHAT_COMPLETIONS, TENANT, body(*history, user("short"), pictures("a")), looking_up=True)
    here = threading.get_ident()
    assert [thread == here for thread in threads] == [False, True, False]


async def test_contents_count_in_what_the_memory_may_hold(monkeypatch):
    monkeypatch.setattr("proxy.shell.planning.planner.MEMORY_BYTES", 1_000_000)
    lookup = Lookup(a=Fetched(bytes(300_000), "image/png", "a.png"))
    one = looking(lookup)
    for _ in range(2):
        await one.plan(CHAT_COMPLETIONS, TENANT, body(pictures("a"), *LONG), looking_up=True)
    assert len(lookup.calls) == 2, "what is larger than the memory is not remembered"
