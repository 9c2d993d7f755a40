import json
import re
from typing import Any

import pytest
from support.demo_front import shortened

from proxy.demo import SYSTEM, Call, Toolbox, make_incident, next_reply


def test_the_same_seed_makes_the_same_incident_and_another_seed_another():
    assert make_incident(12, 4) == make_incident(12, 4)
    assert make_incident(12, 4).answer != make_incident(12, 5).answer


def test_each_hop_is_in_one_line_away_from_both_ends():
    incident = make_incident(26)
    holding = {path: text for path, text in incident.files.items() if f"trace={trace_of(incident)}" in text}
    assert len(holding) == 26
    for text in holding.values():
        at = [index for index, line in enumerate(text.splitlines()) if trace_of(incident) in line]
        total = len(text.splitlines())
        assert len(at) == 1
        assert total // 4 <= at[0] <= 3 * total // 4


def trace_of(incident):
    (trace,) = re.findall(r"trace=(\w+)", incident.task)
    return trace


def failing(incident):
    return incident.answer.split()[0].removeprefix("service=")


Messages = list[dict[str, Any]]


def work(incident, folder, shown, most=60):
    """Let the model work; `shown` is what it sees of the conversation. Each turn's calls, or its last words."""
    toolbox = Toolbox(incident, folder)
    messages: Messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": incident.task}]
    turns: list[list[Call] | str] = []
    for _ in range(most):
        reply = next_reply(incident, shown(messages))
        if not reply.calls:
            return [*turns, reply.text]
        turns.append(list(reply.calls))
        messages.append({"role": "assistant", "content": reply.text})
        for call in reply.calls:
            messages.append({"role": "tool", "content": run(toolbox, call)})
    return turns


def run(toolbox, call):
    return toolbox.run(call.name, json.dumps(dict(call.arguments)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("services", [2, 9, 40])
def test_who_sees_everything_takes_the_shortest_way_to_the_right_answer(seed, services, tmp_path):
    incident = make_incident(services, seed)
    turns = work(incident, tmp_path, lambda messages: messages)
    assert turns[-1] == f"After {services} services: {incident.answer}"
    assert len(turns) == services + 4


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("keep", [600, 2_000, 9_000])
def test_who_sees_little_follows_the_hints_to_the_same_answer(seed, keep, tmp_path):
    incident = make_incident(9, seed)
    turns = work(incident, tmp_path, lambda messages: shortened(messages, tmp_path, keep))
    assert turns[-1] == f"After 9 services: {incident.answer}"
    assert f"{tmp_path}/tool_" in str(turns)


def test_a_test_output_that_is_cut_without_a_hint_ends_in_a_lost_trail(tmp_path):
    def without_hint(messages):
        return [{**message, "content": str(message["content"])[:3_000]} for message in messages]

    incident = make_incident(9, 3)
    last = work(incident, tmp_path, without_hint)[-1]
    assert isinstance(last, str)
    assert last.startswith(f"I lost the trail at {failing(incident)}: the tests result")


def test_a_hint_to_nowhere_is_followed_once(tmp_path):
    def dead_hint(messages):
        return [
            {**message, "content": f"the whole is in {tmp_path}/gone/tool_x.txt"}
            if message["role"] == "tool" and len(str(message["content"])) > 3_000
            else message
            for message in messages
        ]

    incident = make_incident(9, 3)
    turns = work(incident, tmp_path, dead_hint)
    assert isinstance(turns[-1], str)
    assert turns[-1].startswith("I lost the trail")
    log = {"pattern": f"trace={trace_of(incident)}", "path": "logs/gateway.log"}
    hinted = {**log, "path": f"{tmp_path}/gone/tool_x.txt"}
    assert turns[1:4] == [
        [Call("read_file", {"path": "logs/gateway.log"})],
        [Call("grep", hinted)],
        [Call("grep", log)],
    ]


def test_old_exchanges_may_be_gone(tmp_path):
    incident = make_incident(20, 5)
    turns = work(incident, tmp_path, lambda messages: messages[:2] + messages[2:][-3:])
    assert turns[-1] == f"After 20 services: {incident.answer}"
    assert turns[-2] == [Call("grep", {"pattern": f"service={failing(incident)} ", "path": "logs/deploys.log"})]


def test_who_loses_its_own_words_starts_again_and_again(tmp_path):
    def speechless(messages):
        return [message for message in messages if message["role"] != "assistant"]

    turns = work(make_incident(3), tmp_path, speechless, most=12)
    assert turns == [turns[0]] * 12


def test_a_shortened_list_of_deploys_is_not_taken_for_the_whole(tmp_path):
    incident = make_incident(2, 1)

    def first_deploys(messages):
        return [
            {**message, "content": "\n".join(str(message["content"]).splitlines()[:10])}
            if str(message["content"]).startswith("# logs/deploys.log")
            else message
            for message in messages
        ]

    turns = work(incident, tmp_path, first_deploys)
    assert turns[-1] == f"After 2 services: {incident.answer}"
    assert len(turns) == 7


def test_without_a_task_it_says_so():
    assert next_reply(make_incident(2), [{"role": "user", "content": "hello"}]).text.startswith("I see no task")
