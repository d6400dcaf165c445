"""mailhub's own reasons for what became of a call are shown in the reader's language, wherever they are kept."""

import ast
import re
from collections.abc import Iterator

import pytest
from django.urls import reverse
from django.utils import timezone, translation

from campaigns.engine.claiming import limits
from campaigns.engine.refusal_runs.run_rows import SeenRun
from campaigns.models import Message
from tests import calling, factories
from tests.campaigns.rows import in_doubt
from tests.sources import find_modules, parse_those_with
from tests.vendors.test_condition import answered
from vendors.models import Credential
from vendors.outcomes import NotSent, classify_http
from vendors.own_reasons import read_reason
from vendors.said import Said, show

MAKERS = {"NotSent", "InDoubt", "CallError", "PlaceError", "_fail_exchange", "StreamEnd", "LoginAnswer"}
NEUTRAL = re.compile(r"(http|smtp) \w+( .+)?|\w+: \w+|\w+ \w+|")  # a code, or two values: no words of ours
UNSEEN = {"paused: the limit is 0"}  # `the limit is 0` is the reason in it
REFUSED = "[Errno 111] Connection refused"


def in_german(text: str) -> str:
    with translation.override("de"):
        return show(read_reason(text))


def reasons_in_sources() -> Iterator[tuple[str, str]]:
    """The texts that sources give to outcomes, each value in them as a word or a number."""
    for path, tree in parse_those_with(rf"\b({'|'.join(MAKERS)})\(", find_modules()):
        if path.startswith("vendors/testing/"):
            continue
        named = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in MAKERS:
                given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "reason")]
                for one in given:
                    shown = named.get(one.id, one) if isinstance(one, ast.Name) else one
                    if text := text_of(shown):
                        yield f"{path}:{node.lineno}", text


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [one.value if isinstance(one, ast.Constant) else value_of(one) for one in node.values]
    return "".join(map(str, parts))


def value_of(node: ast.AST) -> str:
    name = ast.unparse(node)
    if "status" in name or "code" in name:
        return "401"
    return "12" if re.search(r"seconds|SECONDS|deadline|timeout|units|limit|size|len|length|count", name) else "word"


def test_each_reason_in_the_sources_has_a_form() -> None:
    found = dict(reasons_in_sources())
    assert len(found) > 50
    unknown = {at: text for at, text in found.items() if not isinstance(read_reason(text), Said)}
    assert not {at: text for at, text in unknown.items() if not NEUTRAL.fullmatch(text)}


@pytest.mark.parametrize(
    ("text", "german"),
    [
        (classify_http(401, {}, b"", now=0).reason, "HTTP 401: Anmeldung oder Konto abgelehnt"),  # type: ignore[union-attr]
        (f"no connection: {REFUSED}", "keine Verbindung: [Errno 111] Verbindung abgelehnt"),
        ("no reply within 0.5 s", "keine Antwort innerhalb von 0,5 s"),
        (
            "waits for the vendor: http 429: too fast for the vendor",
            "wartet auf den Anbieter: HTTP 429: zu schnell für den Anbieter",
        ),
    ],
)
def test_a_reason_is_german_with_its_values_and_its_english_stays(text: str, german: str) -> None:
    assert in_german(text) == german and read_reason(text) == text


@pytest.mark.parametrize("text", ["http 401: Guthaben erschöpft", "", "5.1.1 no such user", "login refused by hand"])
def test_words_of_a_vendor_or_a_person_stay_as_they_are(text: str) -> None:
    assert in_german(text) == text


@pytest.mark.django_db(transaction=True)
def test_a_login_paused_by_its_sender_says_why_in_german_on_every_page(admin_client) -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    factories.at_work(job.vendor)
    why = "http 401: login or account refused"
    calling.by_sender(lambda rows: limits.pause_credential(rows, job.credential_id, why))
    login = Credential.objects.get(pk=job.credential_id)
    assert (login.paused_reason, login.why_paused) == (why, why)
    for path in (
        "/admin/", f"/admin/vendors/credential/{login.pk}/pause/", f"/admin/vendors/credential/{login.pk}/change/",
        f"/admin/campaigns/job/{job.pk}/change/", f"/campaigns/{job.campaign_id}/",
    ):  # fmt: skip
        page = admin_client.get(path, headers={"Accept-Language": "de"}).content.decode()
        assert "HTTP 401: Anmeldung oder Konto abgelehnt" in page and "login or account" not in page, path


@pytest.mark.django_db(transaction=True)
def test_a_row_of_equal_refusals_says_in_german_why_it_pauses() -> None:
    login = factories.credential()
    run = SeenRun("policy", "blocked", 20, timezone.now(), True, True)
    calling.by_sender(lambda rows: limits.pause_credential(rows, login.pk, run.pause_outcome().reason))
    login.refresh_from_db()
    with translation.override("de"):
        said = show(login.why_paused)
    assert said == (
        "20 Nachrichten nacheinander wurden mit denselben Worten abgelehnt: policy blocked: Prüfen Sie das Konto"
    )


@pytest.mark.django_db(transaction=True)
def test_a_vendor_that_is_not_reached_is_told_in_german(admin_client) -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    factories.at_work(job.vendor)
    answered(job.credential, NotSent(f"no connection: {REFUSED}"))
    for path in ("/admin/", f"/admin/campaigns/job/{job.pk}/change/", f"/campaigns/{job.campaign_id}/"):
        page = admin_client.get(path, headers={"Accept-Language": "de"}).content.decode()
        assert "keine Verbindung: [Errno 111] Verbindung abgelehnt" in page and REFUSED not in page, path


@pytest.mark.django_db(transaction=True)
def test_a_doubt_of_ours_is_told_in_german_and_is_still_found_by_its_words(admin_client) -> None:
    job = factories.campaign_with_job(1, status="DISPATCHED")
    Message.objects.filter(campaign=job.campaign).update(
        dequeued_at=timezone.now(), **in_doubt() | {"error_sub_type": "no answer before the deadline"}
    )
    page = admin_client.get(reverse("admin:attention"), headers={"Accept-Language": "de"}).content.decode()
    assert "keine Antwort innerhalb der Frist" in page
    assert 'no answer before the deadline"' in page, "the key of the group"
