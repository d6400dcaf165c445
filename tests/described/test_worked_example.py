"""The worked example of the documents: a vendor that is not shipped, described from its public documents.

The server stands for Sinch as those who wrote this remember its documents; Sinch has seen none of it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.described.calling import send
from tests.described.servers import Answer, Called, VendorServer
from vendors.adapters.base import Letter, Origin
from vendors.adapters.reports import NotTheVendor, Reported, ReportRequest, ReportSource
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

PAGE = Path(__file__).parents[2] / "docs/how-to/describe-step-by-step.md"
PLAN, TOKEN, WEBHOOK_SECRET = "team7plan", "a-token-of-ours", "a-webhook-secret"
SECRET = {"token": TOKEN}
SMS = Letter("0190-1", "+15005550006", "", "Grüße & bye")
E164 = re.compile(r"\+?[1-9][0-9]{4,14}")


def description() -> str:
    """The file on the page: the longest of its indented blocks."""
    blocks = re.findall(r"(?:^    .*\n|^\n)+", PAGE.read_text(), re.MULTILINE)
    lines = max(blocks, key=len).strip("\n").splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines) + "\n"


class Sinch(VendorServer):
    """POST /xms/v1/PLAN/batches."""

    members = frozenset({"from", "to", "body", "client_reference", "delivery_report", "callback_url"})

    def answer(self, called: Called) -> Answer:
        if called.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401)
        if (called.method, called.path) != ("POST", f"/xms/v1/{PLAN}/batches"):
            return Answer(404)
        assert called.headers["content-type"].startswith("application/json")
        said: dict[str, Any] = json.loads(called.body)
        assert said.keys() <= self.members, said.keys() - self.members
        assert said["delivery_report"] in ("none", "summary", "full", "per_recipient", "per_recipient_final")
        assert len(said["body"]) <= 2000 and len(said["client_reference"]) <= 255
        [to] = said["to"]
        if not E164.fullmatch(to):
            return _error(400, "syntax_invalid_parameter_format", f"to: {to}")
        self.books[said["client_reference"]] += 1
        return Answer(201, {"id": f"01FC66621XXXXX119Z8PMV{len(self.calls):04}", "to": [to], "canceled": False})


def _error(status: int, code: str, text: str) -> Answer:
    return Answer(status, {"code": code, "text": text})


def settings(vendor: Sinch, **more: str) -> dict[str, str]:
    return {"description": description(), "server": vendor.url, "plan": PLAN, "from": "Velma", **more}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "sinch.toml"
    path.write_text(description())
    (tmp_path / "secret.json").write_text(json.dumps(SECRET))
    return str(path)


def test_it_is_checked_and_tried_as_the_page_says(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(description().splitlines()) <= 60
    call_command("vendor", "describe", file, "--check")
    assert capsys.readouterr().out.startswith("Sinch (sms): no mistake")
    with Sinch() as vendor:
        own = ("--set", f"server={vendor.url}", f"plan={PLAN}", "from=Velma")
        secret = ("--secret-file", str(Path(file).with_name("secret.json")))
        call_command("vendor", "describe", file, "--try", "--to", "+15005550006", *own, *secret)
        shown = capsys.readouterr().out
        assert "accepted" in shown.lower() and "01FC66621XXXXX119Z8PMV" in shown and TOKEN not in shown
        assert sum(vendor.books.values()) == 1
        vendor.next_answer = Answer(401)
        with pytest.raises(CommandError, match="was not accepted"):
            call_command("vendor", "describe", file, "--try", "--to", "+15005550006", *own, *secret)
        shown = capsys.readouterr().out
        assert "login or account refused" in shown and TOKEN not in shown


def test_what_sinch_answers_comes_to_what_is_known() -> None:
    pool = SMS._replace(origin=Origin("+447700900999"))
    with Sinch() as vendor:
        taken = send(settings(vendor), SECRET, SMS, pool)
        assert [type(one) for one in taken] == [Accepted, Accepted] and vendor.books == {SMS.reference: 2}
        first, second = (json.loads(call.body) for call in vendor.calls)
        assert (first["from"], second["from"]) == ("Velma", "+447700900999") and "callback_url" not in first
        for answer, outcome in (
            (_error(400, "syntax_invalid_parameter_format", "to"), Refused("syntax_invalid_parameter_format")),
            (Answer(401), NotSent("http 401: login or account refused", scope="credential", pause=True)),
            (Answer(429), NotSent("http 429: too fast for the vendor", 30.0, "credential")),
            (Answer(500), InDoubt("http 500")),
            (Answer(201, {"to": []}), InDoubt("http 201 without an id")),
        ):
            vendor.next_answer = answer
            assert send(settings(vendor), SECRET, SMS) == [outcome]


def signed(body: bytes, nonce: str = "01FJA8B4A7BM43YGWSG9GBV067", *, over: bytes | None = None) -> ReportRequest:
    at = str(int(time.time()))
    text = b".".join((over if over is not None else body, nonce.encode(), at.encode()))
    signature = base64.b64encode(hmac.digest(WEBHOOK_SECRET.encode(), text, hashlib.sha256)).decode()
    headers = {f"x-sinch-webhook-signature{name}": value for name, value in (("", signature), ("-nonce", nonce))}
    headers["x-sinch-webhook-signature-timestamp"] = at
    return ReportRequest("POST", "https://mail.example.com/api/v1/receipts/sinch", headers, body)


def read(request: ReportRequest) -> list[Reported]:
    known = {"description": description(), "plan": PLAN, "from": "Velma"}
    return list(Described.read_report(request, ReportSource(known, [WEBHOOK_SECRET], [SECRET])))


def test_its_reports_are_signed_with_a_nonce_that_is_in_a_header() -> None:
    event = {
        "type": "recipient_delivery_report_sms",
        "batch_id": "01FC66621XXXXX119Z8PMV1QPQ",
        "recipient": "15005550006",
        "code": 0,
        "status": "Delivered",
        "at": "2026-08-30T08:16:08.930Z",
        "client_reference": SMS.reference,
    }
    body = json.dumps(event).encode()
    [report] = read(signed(body))
    assert (report.kind, report.reference, report.vendor_id) == ("delivered", SMS.reference, event["batch_id"])
    [report] = read(signed(json.dumps({**event, "status": "Failed", "code": 401}).encode()))
    assert (report.kind, report.code) == ("bounced", "401")
    another = signed(body, "01FJA8B4A7BM43YGWSG9GBV068")
    without = signed(body)
    for headers in (
        {**without.headers, "x-sinch-webhook-signature-nonce": "another"},
        {name: value for name, value in without.headers.items() if not name.endswith("nonce")},
        {**without.headers, "x-sinch-webhook-signature": another.headers["x-sinch-webhook-signature"]},
    ):
        with pytest.raises(NotTheVendor):
            read(ReportRequest(without.method, without.url, headers, body))
    with pytest.raises(NotTheVendor):
        read(signed(body, over=b"{}"))
