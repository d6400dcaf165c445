"""Makes deploy/alerts: rules for Prometheus and a dashboard for Grafana, from the registry of alarms and the metrics.

`python -m deploy.tooling.alerts`. A test compares the files with what this makes.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import django
import yaml

FOLDER = Path(__file__).parents[1] / "alerts"
RULES_FILE, DASHBOARD_FILE = FOLDER / "mailhub.rules.yml", FOLDER / "mailhub.dashboard.json"
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
METRIC = re.compile(r"mailhub_\w+")
URGENT = {"MailhubLate", "MailhubPart", "MailhubHalted", "MailhubPromise", "MailhubWorkers"}
"""Rules for which somebody gets up at night: mail stands still, or a promise is broken."""
WITHOUT_ALARM = {
    "MailhubPart": ("PostgreSQL or Redis does not answer", "Restore it; nothing is lost meanwhile"),
    "MailhubBeat": ("Beat has sent no task for two minutes, or never", "Start beat; workers do its tasks meanwhile"),
    "MailhubAudit": ("No audit has ended for an hour", "Start beat and a hub worker; `audit` shows what takes long"),
    "MailhubHeld": (
        "Jobs are held by a paused vendor or credential, or a limit of 0: perhaps forgotten",
        "Resume it, or raise the limit: `list_jobs --status Paused`, `vendor resume`",
    ),
    "MailhubWorkers": ("No worker reads the queue `hub` or `webhooks`", "Start one"),
    "MailhubAnswers": ("An answer of a recipient is unread for a day; it may ask to stop", "Read it: `answers list`"),
    "MailhubDoubts": ("Messages are in doubt for an hour", "Ask the vendor by reference, then `resolve`"),
}
"""Meaning and action of rules whose metric no alarm has."""
HEAD = "# Made by `python -m deploy.tooling.alerts`. Numbers are equal at each process of mailhub: scrape one.\n"


class Panel(NamedTuple):
    """A plot. `metrics`: each with what Grafana shows as its name. `query`: how one is asked."""

    title: str
    metrics: dict[str, str]
    unit: str = "short"
    query: str = "max by ({labels}) ({metric})"


RATE = "sum by ({labels}) (rate({metric}[5m]))"
SINCE = "time() - max ({metric})"
MOST = "histogram_quantile(0.95, sum by (le, {labels}) (rate({metric}[5m])))"  # 95 of 100 are below
ROWS: dict[str, list[Panel]] = {
    "What goes out": [
        Panel("Outcomes a second", {"mailhub_outcomes_total": "vendor, outcome"}, "reqps", RATE),
        Panel("Refused and put off, by cause", {"mailhub_causes_total": "vendor, cause, what"}, "reqps", RATE),
        Panel("Calls in flight", {"mailhub_calls_in_flight": "vendor"}),
        Panel("Window used", {"mailhub_window_used": "vendor, seconds", "mailhub_window_limit": "vendor, seconds"}),
        Panel("Until the windows have a place", {"mailhub_windows_full_seconds": "vendor"}, "s"),
        Panel("Jobs being sent", {"mailhub_streams": "vendor", "mailhub_streams_limit": "vendor"}),
    ],
    "What waits": [
        Panel("Messages", {"mailhub_messages_waiting": "vendor, state"}),
        Panel("Jobs", dict.fromkeys(("mailhub_jobs_waiting", "mailhub_jobs_late", "mailhub_jobs_held"), "vendor")),
        Panel("The oldest job", {"mailhub_jobs_waiting_oldest_seconds": "vendor"}, "s"),
        Panel("Receiving domains", {"mailhub_receivers_waiting": "vendor"}),
        Panel("The receiving domain that waits longest", {"mailhub_receivers_waiting_seconds": "vendor"}, "s"),
        Panel("Suppressed since midnight", {"mailhub_messages_suppressed": "vendor"}),
    ],
    "How long 95 of 100 take": [
        Panel("From acceptance to the call", {"mailhub_accept_to_call_seconds": "vendor"}, "s", MOST),
        Panel("A call", {"mailhub_call_seconds": "vendor"}, "s", MOST),
        Panel("From an answer to its commit", {"mailhub_call_to_stored_seconds": "vendor"}, "s", MOST),
        Panel("From a call to its report", {"mailhub_report_lag_seconds": "vendor"}, "s", MOST),
        Panel("Messages in a claim", {"mailhub_claim_messages": "vendor"}, "short", MOST),
        Panel("Statements", {"mailhub_statement_seconds": "statement"}, "s", MOST),
    ],
    "Sponsors": [
        Panel("Messages queued", {"mailhub_sponsor_messages_queued": "vendor, sponsor"}),
        Panel("Shares", {"mailhub_sponsor_share": "vendor, sponsor"}),
        Panel("Messages queued by class", {"mailhub_class_messages_queued": "vendor, class"}),
        Panel("Sponsors with queued messages", {"mailhub_sponsors_queued": "vendor"}),
    ],
    "Vendors": [
        Panel("Conditions", {"mailhub_vendor_condition": "vendor, condition"}),
        Panel("Blocked", {"mailhub_vendor_blocked": "vendor"}),
        Panel("Without a good answer", {"mailhub_vendor_failing_seconds": "vendor"}, "s"),
    ],
    "For a person": [
        Panel("In doubt", {"mailhub_messages_in_doubt": "", "mailhub_messages_to_be_acknowledged": ""}),
        Panel(
            "Paused", {"mailhub_campaigns_paused": "", "mailhub_complaint_pauses": "", "mailhub_complaint_warnings": ""}
        ),
        Panel("Unread answers", {"mailhub_answers_unread": "channel"}),
        Panel("The oldest unread answer", {"mailhub_answers_unread_oldest_seconds": "channel"}, "s"),
    ],
    "Reports and webhooks": [
        Panel("Reports a second", {"mailhub_reports_total": "vendor, what"}, "reqps", RATE),
        Panel("Reports before their letters", {"mailhub_reports_waiting": "vendor"}),
        Panel("Returned mail a second", {"mailhub_inbound_mails_total": "what"}, "reqps", RATE),
        Panel("Calls to webhooks", {"mailhub_webhook_calls": "state"}),
        Panel("Webhooks", {"mailhub_webhooks": "state"}),
    ],
    "Parts": [
        Panel("Answers", {"mailhub_up": "part"}),
        Panel("Workers of queues", {"mailhub_queue_workers": "queue"}),
        Panel("Halted; promises broken", {"mailhub_halted": "", "mailhub_audit_breaches": ""}),
        Panel("Since beat's last task", {"mailhub_beat_sent_timestamp_seconds": ""}, "s", SINCE),
        Panel("Since the last audit", {"mailhub_audit_timestamp_seconds": ""}, "s", SINCE),
    ],
}
ACROSS, WIDTH, HEIGHT = 24, 8, 7


def read_metrics() -> dict[str, tuple[str, str]]:
    """Return labels and meaning of each exported metric."""
    from docs.tooling.tables import TABLES

    rows = TABLES["metrics"][1]()
    return {name.strip("`"): (labels.replace("`", ""), meaning) for name, labels, meaning in rows}


def list_rows() -> dict[str, list[Panel]]:
    """Return the rows of the dashboard: of ROWS what is exported, and a last one with all other metrics."""
    exported = read_metrics()
    rows = {title: [one for one in panels if set(one.metrics) <= set(exported)] for title, panels in ROWS.items()}
    named = {name for panels in rows.values() for panel in panels for name in panel.metrics}
    rows["More"] = [Panel(name, {name: labels}) for name, (labels, _) in exported.items() if name not in named]
    return {title: panels for title, panels in rows.items() if panels}


def make_rules() -> str:
    """Return the rules file."""
    groups = {"groups": [{"name": "mailhub", "rules": list(_rules())}]}
    return HEAD + yaml.safe_dump(groups, sort_keys=False, width=120)


def _rules() -> Iterator[dict[str, Any]]:
    from vendors.alarms import ALARMS, RULES

    of_metrics = {alarm.metric: (alarm.meaning, alarm.action) for alarm in reversed(ALARMS.values()) if alarm.metric}
    for rule in RULES:
        own = WITHOUT_ALARM.get(rule.name)
        meaning, action = own or of_metrics[METRIC.findall(rule.expression)[0]]
        yield {
            "alert": rule.name,
            "expr": rule.expression,
            **({"for": rule.lasting} if rule.lasting else {}),
            "labels": {"severity": "page" if rule.name in URGENT else "ticket"},
            "annotations": {
                "summary": LINK.sub(r"\1", meaning),
                "action": LINK.sub(r"\1", action),
                "runbook": "docs/how-to/runbook.md, docs/reference/alarms.md",
            },
        }


def make_dashboard() -> str:
    """Return the dashboard, for the import page of Grafana."""
    dashboard = {
        "title": "mailhub",
        "uid": "mailhub",
        "tags": ["mailhub"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": "vendor",
                    "type": "query",
                    "label": "Vendor",
                    "datasource": {"type": "prometheus", "uid": "${source}"},
                    "query": "label_values(mailhub_streams, vendor)",
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                    "refresh": 2,
                },
            ]
        },
        "panels": list(_place_panels()),
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _place_panels() -> Iterator[dict[str, Any]]:
    helps, number, top = {name: meaning for name, (_, meaning) in read_metrics().items()}, 0, 0
    for title, panels in list_rows().items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": _grid(0, top, ACROSS, 1)}
        top += 1
        for place, panel in enumerate(panels):
            number += 1
            left, below = place * WIDTH % ACROSS, place * WIDTH // ACROSS * HEIGHT
            yield _make_panel(number, panel, helps) | {"gridPos": _grid(left, top + below, WIDTH, HEIGHT)}
        top += -(-len(panels) * WIDTH // ACROSS) * HEIGHT


def _grid(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _make_panel(number: int, panel: Panel, helps: dict[str, str]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": "\n".join(f"{name}: {helps[name]}" for name in panel.metrics),
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": source,
                "expr": _make_query(panel.query, name, labels),
                "legendFormat": _name_series(panel, name, labels),
            }
            for index, (name, labels) in enumerate(panel.metrics.items())
        ],
    }


def _make_query(query: str, name: str, labels: str) -> str:
    series = f"{name}_bucket" if query == MOST else name
    chosen = f'{series}{{vendor=~"$vendor"}}' if "vendor" in labels else series
    return query.format(metric=chosen, labels=labels)


def _name_series(panel: Panel, name: str, labels: str) -> str:
    shown = " ".join(f"{{{{{label}}}}}" for label in labels.split(", ") if label)
    own = name.removeprefix("mailhub_") if len(panel.metrics) > 1 or not shown else ""
    return f"{own} {shown}".strip()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    django.setup()
    RULES_FILE.write_text(make_rules(), encoding="utf-8")
    DASHBOARD_FILE.write_text(make_dashboard(), encoding="utf-8")
