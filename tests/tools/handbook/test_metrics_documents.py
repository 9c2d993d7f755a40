"""Documents and dashboards about metrics agree with the code."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.shell.telemetry import RequestOutcome
from tools.handbook import reference

ROOT = Path(__file__).parents[3]
ALERTS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
GRAFANA = json.loads((ROOT / "deploy" / "grafana" / "context-proxy.json").read_text())
BASE_UNITS = ("seconds", "bytes", "tokens", "ratio")
COUNTED = (
    *("responses", "info", "requests", "streams", "artifacts", "attempts"),
    *("overflows", "cured", "edits", "rounds", "failures", "results", "dollars"),
)


def series():
    """Every name that can stand in a query, with its labels."""
    found: dict[str, tuple[str, ...]] = {}
    for family, labels in reference.metric_families():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        for suffix in suffixes:
            found[family.name + suffix] = (*labels, "le") if suffix == "_bucket" else tuple(labels)
    return found


def queries():
    for panel in GRAFANA["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in GRAFANA["templating"]["list"][1:]:
        yield variable["query"]["query"]


LABELS = {
    *("outcome", "reason", "attempt_kind", "kind", "scope", "model", "limit"),
    *("status", "usage", "api", "client", "upstream", "version"),
}


def test_names_and_units_follow_the_convention():
    families = reference.metric_families()
    assert len({family.name for family, _ in families}) == len(families) > 15
    for family, labels in families:
        assert re.fullmatch(r"context_proxy_[a-z]+(_[a-z]+)*", family.name)
        assert not family.name.endswith(("_total", "_count", "_sum", "_ms", "_kb"))
        assert family.name.endswith((*BASE_UNITS, *COUNTED))
        assert family.documentation.endswith(".")
        assert set(labels) <= LABELS


def test_every_metric_of_the_grafana_dashboard_exists_with_its_labels():
    known = series()
    used: set[str] = set()
    for query in queries():
        for name, labels in re.findall(r"(context_proxy_\w+)(\{[^}]*\})?", query):
            used.add(name)
            assert name in known, query
            assert set(re.findall(r"(\w+)=~?\"", labels)) | set(re.findall(r"(\w+)!=\"", labels)) <= {
                *known[name],
                "job",
                "instance",
            }
        for label in re.findall(r"by \(([^)]*)\)", query):
            assert set(label.split(", ")) <= {one for labels in known.values() for one in labels}
    families = {family.name for family, _ in reference.metric_families()}
    shown = {name for name in families if any(one.startswith(name) for one in used)}
    assert families == shown, "what is counted is shown"


def test_the_panels_do_not_lie_on_one_another_and_have_names():
    taken: set[tuple[int, int]] = set()
    ids: list[Any] = []
    for panel in GRAFANA["panels"]:
        ids.append(panel["id"])
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["title"]
    assert len(set(ids)) == len(ids)


def rules():
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def test_alerts_use_metrics_and_outcomes_that_exist():
    known = series()
    assert len(rules()) >= 4
    for rule in rules():
        named = re.findall(r"(context_proxy_\w+)", rule["expr"])
        assert set(named) <= set(known), rule["alert"]
        for outcomes in re.findall(r'outcome=~?"([^"]+)"', rule["expr"]):
            assert all(any(re.fullmatch(one, known) for known in RequestOutcome) for one in outcomes.split("|"))
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_each_alert_names_its_requests_on_the_dashboard_and_a_page_that_helps():
    filters = {"view", "show", "status", "upstream", "hours"}
    for rule in rules():
        page, _, section = rule["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert section in ("", *slugs), rule["alert"]
        address = rule["annotations"]["dashboard"]
        assert address.startswith("http://{{ $labels.instance }}/")
        named = {one.partition("=")[0] for one in address.partition("#?")[2].split("&") if one}
        assert named <= filters, rule["alert"]
        is_of_upstream = re.match(r"sum by \([^)]*upstream", rule["expr"]) is not None
        assert is_of_upstream == ("{{ urlquery $labels.upstream }}" in address), rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian's: prometheus)")
def test_prometheus_takes_the_alerts_and_they_fire_when_they_should():
    folder = ROOT / "deploy" / "prometheus"
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
