"""Artifacts over HTTP: the owner of a request, and no one else, gets back what was cut out, whole or in parts."""

from __future__ import annotations

import asyncio
import json
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.journey import BASH, KEY, World, cut, long_text, one_call

from proxy.core.artifact import Artifact
from proxy.errors import ArtifactNotFound
from proxy.shell.artifacts import ArtifactReader, ArtifactStore, PrivateFolder, Tenants

LONG = long_text(5_000, "café")
OTHER_KEY = "sk-somebody-else"


def get(world: World, name: str, *, key: str | None = KEY, method: str = "GET", **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    return world.client.request(method, world.proxies[0].removesuffix("/v1") + f"/artifacts/{name}", headers=sent)


def refusal(answer: httpx.Response) -> Mapping[str, Any]:
    """The error in OpenAI's shape."""
    assert answer.headers["content-type"] == "application/json"
    error: Mapping[str, Any] = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return error


def test_the_whole_comes_back_byte_for_byte_and_cannot_harm_a_browser(build: Any) -> None:
    world = build()
    name = cut(world, LONG)
    answer = get(world, name)
    assert (answer.status_code, answer.content) == (200, LONG.encode())
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-length"] == str(len(LONG.encode()))
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-disposition"] == f'inline; filename="{name}"'


def test_a_head_says_what_a_get_would_and_sends_nothing(build: Any) -> None:
    world = build()
    name = cut(world, LONG)
    for query in ("", "?lines=1-5", "?stat"):
        full, head = get(world, name + query), get(world, name + query, method="HEAD")
        assert (head.status_code, head.content) == (200, b"")
        changing = {"date", "x-request-id"}
        assert {k: v for k, v in head.headers.items() if k not in changing} == {
            k: v for k, v in full.headers.items() if k not in changing
        }
    assert get(world, name, method="HEAD", range="bytes=0-5").status_code == 200


RANGES = [
    ("bytes=0-0", 0, 1),
    ("bytes=0-", 0, None),
    ("bytes=10-19", 10, 20),
    ("bytes=100-999999999999999999", 100, None),
    ("bytes=-7", -7, None),
    ("bytes=-999999999999999999", 0, None),
    ("bytes= 5-6", 5, 7),
]


def test_ranges_of_bytes(build: Any) -> None:
    world = build()
    whole = LONG.encode()
    name = cut(world, LONG)
    for byte_range, start, stop in RANGES:
        answer = get(world, name, range=byte_range)
        assert (answer.status_code, answer.content) == (206, whole[start:stop])
        begin = start % len(whole)
        assert answer.headers["content-range"] == f"bytes {begin}-{begin + len(answer.content) - 1}/{len(whole)}"


NO_RANGES = ["bytes=5-4", "bytes=-0", "bytes=99999999-", "bytes=0-1,5-6", "bytes=", "bytes=a-b", "bytes=1"]


def test_ranges_that_are_not_there_are_refused(build: Any) -> None:
    world = build()
    name = cut(world, LONG)
    for byte_range in NO_RANGES:
        answer = get(world, name, range=byte_range)
        assert (answer.status_code, refusal(answer)["code"]) == (416, "range_not_satisfiable")
        assert answer.headers["content-range"] == f"bytes */{len(LONG.encode())}"


def test_a_range_of_another_unit_is_none(build: Any) -> None:
    world = build()
    assert get(world, cut(world, LONG), range="lines=1-2").content == LONG.encode()


def test_pages_put_together_are_the_whole(build: Any) -> None:
    world = build()
    name, seen, following = cut(world, LONG), "", "1-"
    while following:
        answer = get(world, f"{name}?lines={following}")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        header, _, rest = answer.text.partition("\n")
        seen += rest
        found = re.search(r"lines=(\S+)\]$", header)
        following = found[1] if found else ""
    assert seen == LONG


def test_searches_parts_of_json_and_what_it_is(build: Any) -> None:
    world = build()
    name = cut(world, LONG)
    lines = LONG.splitlines()
    found = get(world, f"{name}?grep=caf%C3%A9+4711%3A&context=1").text.splitlines()
    assert found[1:] == [f"4711-{lines[4710]}", f"4712:{lines[4711]}", f"4713-{lines[4712]}"]
    assert "1 matches in lines 1-5000 of 5000" in found[0]
    stat = get(world, f"{name}?stat").json()
    assert stat["created"].startswith("20")
    assert stat | {"created": 0} == {
        "id": name,
        "bytes": len(LONG.encode()),
        "lines": 5000,
        "type": "text/plain",
        "tool": "bash",
        "created": 0,
    }
    listing = json.dumps({"files": [{"path": f"src/{number}.py", "text": "a\nb"} for number in range(4_000)]})
    part = get(world, f"{cut(world, listing)}?json=/files/3999/path")
    assert part.text.endswith("]\nsrc/3999.py")


NO_QUERIES = [
    ("?lines=0", 400, "lines"),
    ("?lines=9-5", 400, "lines"),
    ("?lines=9999-", 416, "lines"),
    ("?lines=" + "9" * 400, 400, "lines"),
    ("?grep=(", 400, "grep"),
    ("?grep=" + "a" * 501, 400, "grep"),
    ("?grep=a&max=0", 400, "max"),
    ("?context=3", 400, "context"),
    ("?stat&lines=1-", 400, "stat"),
    ("?json=/a", 400, "json"),
    ("?download=1", 400, "download"),
    ("?lines=1-&lines=2-", 400, None),
    ("?lines=%FF", 400, "lines"),
    ("?" + "&".join(f"a{n}=1" for n in range(50)), 400, "a0"),
]


def test_a_value_that_makes_no_sense_is_refused_with_the_allowed_ones(build: Any) -> None:
    world = build()
    name = cut(world, LONG)
    for query, status, param in NO_QUERIES:
        answer = get(world, name + query)
        error = refusal(answer)
        assert (answer.status_code, error["param"]) == (status, param)
        assert len(error["message"]) > 20


def test_a_query_and_a_range_do_not_go_together(build: Any) -> None:
    world = build()
    answer = get(world, cut(world, LONG) + "?lines=1-2", range="bytes=0-5")
    assert (answer.status_code, refusal(answer)["code"]) == (400, "bad_artifact_query")


def test_an_artifact_is_for_the_key_that_brought_it(build: Any) -> None:
    world = build()
    name = cut(world, LONG)
    without, foreign = get(world, name, key=None), get(world, name, key=OTHER_KEY)
    unknown = get(world, name.replace("bash", "dash"), key=OTHER_KEY)
    assert (without.status_code, refusal(without)["code"]) == (401, "missing_key")
    assert without.headers["www-authenticate"] == "Bearer"
    assert (foreign.status_code, refusal(foreign)["code"]) == (404, "artifact_not_found")
    assert refusal(foreign) == refusal(unknown)
    assert cut(world, LONG, OTHER_KEY) == name
    assert get(world, name, key=OTHER_KEY).content == get(world, name).content == LONG.encode()


def test_what_came_without_a_key_is_had_without_one(build: Any) -> None:
    world = build()
    body = json.dumps(one_call(LONG)).encode()
    world.client.post(f"{world.proxies[0]}/chat/completions", content=body)
    name = next(iter(world.kept))
    assert get(world, name, key=None).content == LONG.encode()
    assert get(world, name).status_code == 404


NO_NAMES = ["..%2F..%2Fowner-secret", "x", "%00", ".meta", "", "a/b", "tool_x_0123456789abcdef.txt"]


def test_nothing_else_can_be_read(build: Any) -> None:
    world = build()
    cut(world, LONG)
    for name in NO_NAMES:
        assert get(world, name).status_code == 404


def test_an_artifact_is_read_by_get_and_head_alone(build: Any) -> None:
    world = build()
    answer = get(world, cut(world, LONG), method="DELETE")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert len(world.kept) == 1


def test_a_shared_store_is_everybody_s(build: Any) -> None:
    world = build(artifacts={"shared": True})
    name = cut(world, LONG)
    assert all(get(world, name, key=key).content == LONG.encode() for key in (KEY, OTHER_KEY, None))
    assert get(world, name.replace("bash", "dash"), key=None).status_code == 404


def test_an_artifact_is_open_on_this_machine_when_that_is_set_but_not_through_another_name_or_proxy(build: Any) -> None:
    world = build(artifacts={"open_on_loopback": True})
    name = cut(world, LONG)
    assert get(world, name, key=None).content == LONG.encode()
    assert get(world, name, key=OTHER_KEY).content == LONG.encode()
    assert get(world, name, key=None, host="rebound.example").status_code == 401
    assert get(world, name, key=None, x_forwarded_for="10.0.0.9").status_code == 401


def test_every_read_is_logged_without_key_or_content(build: Any) -> None:
    world = build()
    name = cut(world, LONG)
    get(world, f"{name}?grep=sk-in-pattern")
    get(world, "sk-in-path", key=None)
    lines = world.logged("artifact_read", 2)
    assert [(line["artifact"], line["status"]) for line in lines] == [(name, 200), (None, 401)]
    assert lines[0]["sent_bytes"] > 0
    assert "sk-" not in world.log_text


def test_the_command_of_a_notice_fetches_the_lines_that_are_missing(build: Any) -> None:
    """An agent with a shell on another machine: it runs the notice's command, with its key in its environment."""
    world = build(artifacts={"public_url": "http://elsewhere.example"})
    request = one_call(LONG, tools=[{"type": "function", "function": {"name": "bash"}}])
    assert world.ask(request, x_forwarded_for="10.1.2.3").status_code == 200
    sent = world.upstream.last.messages[3]["content"]
    reported = re.search(r"curl -s -H \"Authorization: Bearer \$OPENAI_API_KEY\" '(\S+)'", sent)
    assert reported is not None
    assert "kept/tool-output" not in sent
    address = reported[1].replace("http://elsewhere.example", world.proxies[0].removesuffix("/v1"))
    page = world.client.get(address, headers={"authorization": f"Bearer {KEY}"}).text
    first = int(re.search(r"lines=(\d+)", address)[1])  # type: ignore[index]
    assert page.splitlines()[1:] == LONG.splitlines()[first - 1 : first + 80]
    assert sent.startswith("\n".join(LONG.splitlines()[: first - 1]))


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"authorization": "Bearer sk-openai"},
        {"x-api-key": "sk-anthropic", "anthropic-version": "2023-06-01"},
        {"anthropic-version": "2023-06-01", "authorization": "Bearer sk-token"},
        {"api-key": "sk-azure"},
        {"x-api-key": "sk-anthropic", "authorization": "Bearer sk-openai"},
        {"authorization": "Bearer sk-openai", "x-api-key": "sk-anthropic"},
    ],
    ids=lambda sent: " ".join(sent),
)
def test_the_command_of_a_notice_sends_the_keys_that_its_client_sends(sent: dict[str, str], build: Any) -> None:
    """The variables are those in which the clients of these APIs keep their keys."""
    variables = {
        "OPENAI_API_KEY": "sk-openai",
        "ANTHROPIC_API_KEY": "sk-anthropic",
        "ANTHROPIC_AUTH_TOKEN": "sk-token",
        "AZURE_OPENAI_API_KEY": "sk-azure",
    }
    world = build(artifacts={"public_url": "http://elsewhere.example"})
    tools = [{"type": "function", "function": {"name": "bash"}}]
    headers = {"content-type": "application/json", "x-forwarded-for": "10.1.2.3", **sent}
    commands = []
    for _ in range(2):
        answer = world.client.post(
            f"{world.proxies[0]}/chat/completions", json=one_call(LONG, tools=tools), headers=headers
        )
        assert answer.status_code == 200
        commands.append(re.search(r"curl -s(( -H \"[^\"]+\")*) '(\S+)'", world.upstream.last.messages[3]["content"]))
    command = commands[0]
    assert command is not None
    assert command[0] == commands[1][0], "the same in every turn"
    written = string.Template(command[1]).substitute(variables)
    named = [tuple(one.split(": ")) for one in re.findall('-H "([^"]+)"', written)]
    assert {name.lower(): value for name, value in named} == {
        name: value for name, value in sent.items() if name != "anthropic-version"
    }
    address = command[3].replace("http://elsewhere.example", world.proxies[0].removesuffix("/v1"))
    assert world.client.get(address, headers=named).status_code == 200


def test_the_way_back_is_the_same_in_every_turn_and_a_strange_host_changes_no_other_conversation(build: Any) -> None:
    world = build()
    request = one_call(LONG, tools=[BASH])
    world.ask(request, x_real_ip="10.1.2.3")
    first = world.upstream.last.messages
    request["messages"] += [{"role": "assistant", "content": "Go on?"}, {"role": "user", "content": "Yes."}]
    world.ask(request, host="evil.example' -o /etc/passwd '", x_real_ip="10.1.2.3")
    assert "evil" not in world.upstream.last.body.decode()
    world.ask(request, host="other.example:1", x_real_ip="10.1.2.3")
    assert "http://other.example:1/artifacts/tool_bash_" in world.upstream.last.messages[3]["content"]
    world.ask(request, x_real_ip="10.1.2.3")
    assert world.upstream.last.messages[: len(first)] == first


async def _keep(folder: Path, artifact: Artifact) -> None:
    tenant = Tenants.of_folder(folder).tenant_of([(b"authorization", f"Bearer {KEY}".encode())]).hex()
    store = ArtifactStore(PrivateFolder(folder / "tool-output"), retention_days=7, max_bytes=2**30)
    assert await store.keep([artifact], tenant) == frozenset()
    await store.close()


KINDS = [
    ("html", "text/html; charset=utf-8", "attachment"),
    ("svg", "image/svg+xml", "attachment"),
    ("png", "image/png", "inline"),
    ("json", "application/json", "inline"),
    ("bin", "application/octet-stream", "attachment"),
]


def test_what_may_hold_scripts_is_saved_and_not_shown(build: Any) -> None:
    world = build()
    for suffix, kind, how in KINDS:
        artifact = Artifact(b"<script>alert(1)</script>", "web", suffix)
        asyncio.run(_keep(world.folder, artifact))
        answer = get(world, artifact.id)
        assert answer.content == artifact.content
        assert (answer.headers["content-type"], answer.headers["content-disposition"].split(";")[0]) == (kind, how)


def test_a_large_artifact_passes_in_pieces_and_a_client_that_leaves_ends_it(build: Any) -> None:
    world = build()
    artifact = Artifact(bytes(24 * 1024 * 1024), "sh", "bin")
    asyncio.run(_keep(world.folder, artifact))
    address = world.proxies[0].removesuffix("/v1") + f"/artifacts/{artifact.id}"
    with world.client.stream("GET", address, headers={"authorization": f"Bearer {KEY}"}) as answer:
        next(answer.iter_raw())
    line = world.logged("artifact_read")[0]
    assert line["sent_bytes"] < len(artifact.content)
    read = 0
    with world.client.stream("GET", address, headers={"authorization": f"Bearer {KEY}"}) as answer:
        for piece in answer.iter_bytes():
            assert piece == artifact.content[read : read + len(piece)]
            read += len(piece)
    assert read == len(artifact.content)


def test_content_that_vanishes_while_it_is_sent_breaks_the_answer_off(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = build()
    artifact = Artifact(bytes(3 * 2**20), "sh", "bin")
    asyncio.run(_keep(world.folder, artifact))
    real = ArtifactReader.piece

    async def piece(reader: ArtifactReader, stored: Any, start: int, stop: int) -> bytes:
        if start:
            raise ArtifactNotFound("gone")
        return await real(reader, stored, start, stop)

    monkeypatch.setattr(ArtifactReader, "piece", piece)
    with pytest.raises(httpx.RemoteProtocolError):
        get(world, artifact.id)
    assert world.logged("artifact_read")[0]["status"] == 404


def test_replacement_text_is_readable_with_access_to_the_artifact_and_never_stored(build: Any) -> None:
    world = build()
    assert world.ask(one_call(LONG), x_request_id="cut").status_code == 200
    sent = world.upstream.last.messages[3]["content"]
    name = re.findall(r"tool_bash_[0-9a-f]{16}\.\w+", sent)[0]
    world.logged("request_done")
    answer = get(world, f"{name}?instead=cut")
    assert (answer.status_code, answer.text) == (200, sent)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    head = get(world, f"{name}?instead=cut", method="HEAD")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(sent.encode())))
    for key, status in ((OTHER_KEY, 404), (None, 401)):
        assert get(world, f"{name}?instead=cut", key=key).status_code == status
    unknown = get(world, f"{name}?instead=another")
    assert (unknown.status_code, refusal(unknown)["code"]) == (404, "artifact_not_found")
    both = get(world, f"{name}?instead=cut&stat")
    assert (both.status_code, refusal(both)["param"]) == (400, "instead")
    world.client.get(world.proxies[0].removesuffix("/v1") + "/decisions")  # now the file has it
    words = [line.encode() for line in sent.splitlines() if line and line not in LONG]
    written = [path.read_bytes() for path in world.folder.rglob("*") if path.is_file()]
    assert len(written) > 3
    assert not [word for word in words for one in (*written, world.log_text.encode()) if word in one]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_unedited_content_has_no_replacement(build: Any, mode: str) -> None:
    world = build()
    name = cut(world, LONG)
    world.ask(one_call(LONG), x_context_proxy_mode=mode, x_request_id="whole")
    world.logged("request_done", 2)
    assert get(world, f"{name}?instead=whole").status_code == 404
