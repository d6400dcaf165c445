"""deploy/alerts is what the registry and the metrics make; promtool checks the rules and lets each of them ring."""

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.tooling import alerts
from vendors.alarms import RULES

PROMTOOL = shutil.which("promtool")
NO_PROMTOOL = pytest.mark.skipif(PROMTOOL is None, reason="no promtool on this machine")


def read_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(alerts.RULES_FILE.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def read_panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(alerts.DASHBOARD_FILE.read_text())["panels"]
    return panels


def test_the_files_are_made_from_the_registry_and_the_metrics() -> None:
    assert alerts.RULES_FILE.read_text() == alerts.make_rules(), "run: python -m deploy.tooling.alerts"
    assert alerts.DASHBOARD_FILE.read_text() == alerts.make_dashboard(), "run: python -m deploy.tooling.alerts"


def test_every_metric_of_the_rules_is_exported() -> None:
    exported = set(alerts.read_metrics())
    assert len(exported) > 30
    assert {name for rule in read_rules() for name in alerts.METRIC.findall(rule["expr"])} <= exported


def test_the_dashboard_shows_every_metric_by_its_labels_and_no_other() -> None:
    panels = [panel for panels in alerts.list_rows().values() for panel in panels]
    shown = {name: labels for panel in panels for name, labels in panel.metrics.items()}
    queries = "".join(target["expr"] for panel in read_panels() for target in panel.get("targets", []))
    assert shown == {name: labels for name, (labels, _) in alerts.read_metrics().items()}
    assert {name.removesuffix("_bucket") for name in alerts.METRIC.findall(queries)} == set(shown)


def test_no_panel_covers_another() -> None:
    grids = [one["gridPos"] for one in read_panels()]
    assert len({one["id"] for one in read_panels()}) == len(grids)
    for a, b in combinations(grids, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    assert max(one["x"] + one["w"] for one in grids) == alerts.ACROSS


def test_every_rule_says_what_it_means_what_to_do_and_how_urgent_it_is() -> None:
    rules = read_rules()
    assert [one["alert"] for one in rules] == [rule.name for rule in RULES]
    assert alerts.URGENT | set(alerts.WITHOUT_ALARM) <= {rule.name for rule in RULES}
    for one in rules:
        assert all(one["annotations"].values()), one["alert"]
        assert "](" not in "".join(one["annotations"].values()), "links lead nowhere in an alert"
        assert one["labels"]["severity"] in ("page", "ticket")


@pytest.mark.slow("programs")
@NO_PROMTOOL
def test_promtool_finds_nothing_wrong() -> None:
    ran = subprocess.run(
        [str(PROMTOOL), "check", "rules", alerts.RULES_FILE], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0 and f"{len(RULES)} rules found" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.slow("programs")
@NO_PROMTOOL
def test_each_rule_rings_by_its_metric_and_is_silent_before(tmp_path: Path) -> None:
    ran = try_rules(tmp_path, [case for rule in read_rules() for case in make_cases(rule)])
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_beat_has_to_do_has_a_rule_that_rings_when_it_stops() -> None:
    """Each metric that is the time of something is compared with the time by a rule, and is there from the start."""
    times = {name for name in alerts.read_metrics() if name.endswith("_timestamp_seconds")}
    compared = {
        name
        for rule in RULES
        if rule.expression.startswith("time() - ")
        for name in alerts.METRIC.findall(rule.expression)
    }
    assert times == compared


@pytest.mark.slow("programs")
@NO_PROMTOOL
def test_a_rule_that_does_not_ring_would_be_seen(tmp_path: Path) -> None:
    (case, *_) = make_cases(read_rules()[0])
    case["input_series"][0]["values"] = "0x400"
    ran = try_rules(tmp_path, [case])
    assert ran.returncode == 1 and "MailhubLate" in ran.stdout + ran.stderr


def try_rules(folder: Path, cases: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    file = folder / "cases.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(alerts.RULES_FILE)], "tests": cases}))
    return subprocess.run([str(PROMTOOL), "test", "rules", file], capture_output=True, text=True, check=False)


def make_cases(rule: dict[str, Any]) -> list[dict[str, Any]]:
    """One case in which it rings, after the time that it has to last, and one in which it does not."""
    metric = alerts.METRIC.findall(rule["expr"])[0]
    loud, calm = make_values(rule["expr"])
    wait, (late,) = rule.get("for", "0m"), re.findall(r"^time\(\) - \w+ > (\d+)", rule["expr"]) or ["0"]
    minutes = {"s": 1, "m": int(wait[:-1]), "h": 60 * int(wait[:-1])}[wait[-1]] + int(late) // 60 + 5
    ringing = {"exp_labels": {**rule["labels"], "vendor": "v"}, "exp_annotations": rule["annotations"]}
    made = []
    for values, expected in ((loud, [ringing]), (calm, [])):
        asked = {"alertname": rule["alert"], "eval_time": f"{minutes}m", "exp_alerts": expected}
        series = [{"series": f'{metric}{{vendor="v"}}', "values": values}]
        made.append({"interval": "1m", "input_series": series, "alert_rule_test": [asked]})
    return made


def make_values(expression: str) -> tuple[str, str]:
    """The values of a metric with which an expression holds, and with which it does not, in promtool's notation."""
    if expression.startswith("time() - "):
        return "0x400", "0+60x400"  # it stands still; it is the time
    sign, bound = re.findall(r"mailhub_\w+ (==|>) (\d+)", expression)[0]
    others = {"==": (bound, "0" if bound == "1" else "1"), ">": (str(int(bound) + 1), bound)}
    loud, calm = others[sign]
    return f"{loud}x400", f"{calm}x400"
