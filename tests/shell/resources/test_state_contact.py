"""Reports about the replicas' shared server: its loss once, for all its users, and never a password."""

import asyncio

from pydantic import SecretStr
from structlog.testing import capture_logs

from proxy.shell.resources.state_contact import StateContact

URL = SecretStr("redis://:canary@127.0.0.1:9/0")


async def well():
    pass


async def refused():
    raise ConnectionRefusedError(111, "Connection refused")


async def test_its_loss_is_logged_once_for_all_and_its_return_when_all_have_found_it():
    failures: list[str] = []
    contact = StateContact(URL, lambda: "5eed", lambda: failures.append(""))
    with capture_logs() as log:
        await contact.speak("learning", well)
        assert (contact.problem, log) == (None, [])
        for user in ("learning", "decisions", "learning"):
            await contact.speak(user, refused)
        await contact.speak("learning", well)
        assert (contact.problem_of("learning"), contact.problem) == (None, "Connection refused")
        await contact.speak("decisions", well)
        assert contact.problem is None
    assert [line["event"] for line in log] == ["state_lost", "state_found"]
    assert len(failures) == 3
    assert "canary" not in str(log)
    await contact.close()


async def test_a_server_that_is_not_there_is_a_fact_and_no_error():
    contact = StateContact(URL, lambda: "5eed")

    async def ask():
        await contact.server.get("x")

    with capture_logs() as log:
        await contact.speak("learning", ask)
    assert log[0]["server"] == "127.0.0.1:9"
    assert contact.problem is not None
    await contact.close()


async def test_a_defect_is_logged_as_one_and_ends_nothing():
    contact = StateContact(URL, lambda: "5eed")

    async def broken():
        raise KeyError("x")

    with capture_logs() as log:
        await contact.speak("learning", broken)
    assert [line["event"] for line in log] == ["state_failed", "state_lost"]
    assert contact.problem == "KeyError"
    await contact.close()


async def test_an_exchange_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr("proxy.shell.resources.state_contact.WHOLE_SECONDS", 0.01)
    contact = StateContact(URL, lambda: "5eed")

    async def endless():
        await asyncio.Event().wait()

    with capture_logs():
        await contact.speak("decisions", endless)
    assert contact.problem == "TimeoutError"
    await contact.close()


async def test_nothing_is_exchanged_before_it_is_known_with_whom():
    fleet: str | None = None
    contact, exchanged = StateContact(URL, lambda: fleet), []

    async def exchange():
        exchanged.append(contact.fleet)

    await contact.speak("learning", exchange)
    assert (exchanged, contact.problem) == ([], "the secret of tenants is not known yet")
    fleet = "5eed"
    await contact.speak("learning", exchange)
    assert (exchanged, contact.problem) == (["5eed"], None)
    await contact.close()
