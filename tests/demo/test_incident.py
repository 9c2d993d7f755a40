from __future__ import annotations

from proxy.demo.incident import make_incident


def test_the_same_seed_makes_the_same_incident_and_another_seed_another() -> None:
    assert make_incident(12, 4) == make_incident(12, 4)
    assert make_incident(12, 4).answer != make_incident(12, 5).answer


def test_each_hop_stands_in_one_line_away_from_both_ends() -> None:
    incident = make_incident(26)
    holding = {path: text for path, text in incident.files.items() if f"trace={incident.trace}" in text}
    assert len(holding) == 26
    for text in holding.values():
        at = [index for index, line in enumerate(text.splitlines()) if incident.trace in line]
        total = len(text.splitlines())
        assert len(at) == 1
        assert total // 4 <= at[0] <= 3 * total // 4
