"""Images that messages only name: they come to the upstream as bytes, once and for ever the same."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.journey import BASH, KEY, World, call, result
from support.picture_server import png
from support.upstream import Answer, Request, ScriptedModel, answering, listening

from proxy.core.artifact import Artifact

SEEING = [{"match": "*", "input": ["text", "vision"]}]
BLIND = [{"match": "*", "input": ["text"]}]
FETCHING = {"fetch_remote_images": True, "allow_private_addresses": True}


@dataclass
class Site:
    """A web site with pictures."""

    pictures: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, _: str, path: str, __: bytes) -> Answer:
        """What is at a path."""
        self.requests.append(path.removeprefix("/v1"))
        body = self.pictures.get(self.requests[-1])
        return Answer(404, b"<html>nothing here", "text/html") if body is None else Answer(200, body, "image/png")

    def url(self, path: str) -> str:
        return f"{self.address}{path}?signature=secret"


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()
    with listening(ScriptedModel(beside=found.answer)) as found.address:
        yield found


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def inlined(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def asking(*parts: Any, more: str = "") -> dict[str, Any]:
    content = [{"type": "text", "text": "What is this? " + more}, *parts]
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


def going_on(request: dict[str, Any], *messages: Any) -> dict[str, Any]:
    added = [{"role": "assistant", "content": "A picture."}, *messages, {"role": "user", "content": "And now?"}]
    return {**request, "messages": [*request["messages"], *added]}


def sent_image(world: World, message: int = 0, part: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = world.upstream.last.messages[message]["content"][part]
    return found


@pytest.mark.parametrize("filling", ["", "long " * 2_000], ids=["short", "long"])
@pytest.mark.parametrize("models", [SEEING, []], ids=["known", "unknown"])
def test_the_upstream_gets_the_image_and_in_the_next_turn_the_same_without_a_download(
    build: Any, site: Site, models: Any, filling: str
) -> None:
    world = build(media=FETCHING, models=models, proxies=[{}, {}])
    site.pictures["/a.png"] = png()
    request = asking(image(site.url("/a.png")), more=filling) | {"tools": [BASH]}
    assert world.ask(request).status_code == 200
    assert sent_image(world, part=2) == {"type": "image_url", "image_url": {"url": inlined(png()), "detail": "low"}}
    (name,) = (name for name, content in world.kept.items() if content == png())
    assert sent_image(world)["text"] == f"[image: a.png, kept in {world.folder / 'tool-output' / name}]"
    first = world.upstream.last.messages
    site.pictures["/a.png"] = png(shade=9)
    for proxy in (0, 1):
        assert world.ask(going_on(request), proxy=proxy).status_code == 200
        assert world.upstream.last.messages[:1] == first
    assert site.requests == ["/a.png"]


@pytest.mark.parametrize("filling", ["", "long " * 2_000], ids=["short", "long"])
def test_a_failure_reaches_the_model_in_words_that_stay(build: Any, site: Site, filling: str) -> None:
    world = build(media=FETCHING, models=SEEING, proxies=[{}, {}])
    request = asking(image(site.url("/gone.png")), more=filling)
    world.ask(request)
    part = sent_image(world)
    assert part["type"] == "text"
    assert part["text"].startswith(f"[cannot fetch] {site.url('/gone.png')}\nStatus: failed; HTTP code: 404; ")
    assert f"final URL: {site.address}/gone.png; content type: text/html\n" in part["text"]
    assert str(world.folder / "tool-output") in part["text"]
    first = world.upstream.last.messages
    site.pictures["/gone.png"] = png()
    for proxy in (0, 1):
        world.ask(going_on(request), proxy=proxy)
        assert world.upstream.last.messages[:1] == first
    assert site.requests == ["/gone.png"]


def test_a_model_that_sees_nothing_gets_a_description_of_what_was_fetched(build: Any, site: Site) -> None:
    world = build(media=FETCHING, models=BLIND)
    site.pictures["/a.png"] = png(30, 20)
    world.ask(asking(image(site.url("/a.png"))))
    part = sent_image(world)
    assert part["type"] == "text"
    assert "a.png" in part["text"]
    assert "30 x 20" in part["text"]
    assert png(30, 20) in world.kept.values()


def test_images_are_left_to_the_upstream_unless_downloads_are_enabled(build: Any, site: Site) -> None:
    world = build(models=SEEING)
    site.pictures["/a.png"] = png()
    body = json.dumps(asking(image(site.url("/a.png")))).encode()
    world.ask(body)
    assert (world.upstream.last.body, site.requests) == (body, [])


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_who_only_observes_downloads_nothing(build: Any, site: Site, mode: str) -> None:
    world = build(media=FETCHING, models=SEEING, mode=mode)
    body = json.dumps(asking(image(site.url("/a.png")))).encode()
    world.ask(body)
    assert (world.upstream.last.body, site.requests) == (body, [])


def test_a_private_network_is_closed_unless_it_is_opened(build: Any, site: Site) -> None:
    world = build(media={"fetch_remote_images": True}, models=SEEING)
    site.pictures["/a.png"] = png()
    world.ask(asking(image(site.url("/a.png")), image("http://127.0.0.1/a.png"), image("http://0x7f.1/a.png")))
    texts = [sent_image(world, part=part)["text"] for part in (1, 2, 3)]
    assert "unusual port" in texts[0]
    assert "private network" in texts[1]
    assert "not a plain http" in texts[2]
    assert site.requests == []


def test_the_log_has_only_the_host_of_an_address(build: Any, site: Site) -> None:
    world = build(media=FETCHING, models=SEEING)
    site.pictures["/a.png"] = png()
    world.ask(asking(image(site.url("/a.png")), image(site.url("/gone.png"))))
    world.logged("request_done")
    assert [(line["host"], line["bytes"]) for line in world.log("image_fetched")] == [("127.0.0.1", len(png()))]
    assert [(line["host"], line["reason"]) for line in world.log("image_not_fetched")] == [("127.0.0.1", "not_found")]
    assert "secret" not in world.log_text
    assert ".png?" not in world.log_text


def test_no_key_goes_to_a_web_site(build: Any) -> None:
    heads: list[Request] = []
    with listening(answering(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", seen=heads)) as address:
        build(media=FETCHING, models=SEEING).ask(asking(image(f"{address}/a.png")))
    assert heads
    assert KEY not in str(heads)


def routed(artifact: str) -> str:
    return json.dumps({"routing": "image_url", "imageUrl": image(f"artifact:{artifact}"), "metadata": {"from": "disk"}})


def test_an_artifact_that_a_tool_names_is_shown_to_the_key_that_brought_it(build: Any, site: Site) -> None:
    world = build(media=FETCHING, models=SEEING)
    site.pictures["/a.png"] = png()
    request = asking(image(site.url("/a.png")))
    world.ask(request)
    name = Artifact(png(), "fetched", "png").id
    assert name in world.kept
    later = going_on(request, call(1, "show"), result(1, routed(name)))
    world.ask(later)
    assert world.upstream.last.body.decode().count(inlined(png())) == 2
    world.ask(asking(), key="sk-another")
    other = {**later, "messages": later["messages"][1:]}
    world.ask(other, key="sk-another")
    assert world.upstream.last.messages == other["messages"]


@pytest.mark.parametrize("target", ["keep", "user_after_batch", "user_after_assistant", "text"])
def test_a_long_run_is_the_same_on_every_replica_whatever_becomes_of_the_site(
    build: Any, site: Site, target: str
) -> None:
    """Each request begins with the messages of the one before, also where it was asked by another proxy."""
    models = [{"match": "*", "input": ["text", "vision"], "tool_images": target}]
    world = build(media=FETCHING, models=models, proxies=[{}, {}, {"language": "en"}])
    name = Artifact(png(shade=0), "fetched", "png").id
    request = {"model": "m", "messages": [{"role": "user", "content": "Go."}]}
    before: list[Any] = []
    for turn in range(8):
        site.pictures = {f"/{turn % 3}.png": png(shade=turn), **({} if turn % 2 else site.pictures)}
        shown = [image(site.url(f"/{turn % 3}.png")), image(site.url(f"/{turn}.png")), image(f"artifact:{name}")]
        request["messages"] += [call(turn), result(turn, shown if turn % 2 else routed(name))]  # type: ignore[arg-type]
        request["messages"] += [{"role": "user", "content": [{"type": "text", "text": "See."}, *shown[:2]]}]
        assert world.ask(request, proxy=turn % 3).status_code == 200
        sent = world.upstream.last.messages
        assert sent[: len(before)] == before
        before = sent
        request["messages"] += [{"role": "assistant", "content": "Yes. " * 200}]
    assert len(site.requests) == len(set(site.requests)) == 8
    assert "data:image/png" in json.dumps(before)
    assert "[cannot fetch]" in json.dumps(before)
