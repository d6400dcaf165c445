"""A sponsor never sees or changes anything of another: asked of every endpoint that the schema names."""

import json
import re

import pytest

from campaigns.models import (
    Draft,
    Entitlement,
    Identity,
    Job,
    Message,
    RecipientAnswer,
    Session,
    Suppression,
    Template,
    TemplateVersion,
    Topic,
    Webhook,
    WebhookCall,
)
from tests.front.everything import OF_VENDORS, everything, operations
from tests.front.program import Program, api_vendor, fresh, letter, problem
from vendors.models import Mailcaster, RateLimit

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
ADDRESSES = {"channel": "email", "addresses": ["ann@example.com"]}
BODIES = {
    "/api/v1/webhooks": {"url": "https://other.example/hook"},
    "/api/v1/suppressions": {"channel": "email", "suppressions": [{"address": "ann@example.com", "reason": "stop"}]},
    "/api/v1/recipients/find": {"text": "ann@sandbox.example"},
    "/api/v1/suppressions/lift": ADDRESSES,
    "/api/v1/suppressions/erase": ADDRESSES,
    "/api/v1/templates": {"name": "News", "channel": "email", "subject": "Hello", "body": "Good day"},
}
NOTHING = {
    "session_id": "ses_" + "0" * 32,
    "message_id": "msg_999999999",
    "webhook_id": "whk_999999999",
    "event_id": "evt_" + "0" * 32,
    "file_id": "file_" + "0" * 64,
    "vendor": "nobody",
    "template": "nobody",
    "topic": "nobody",
    "answer_id": "ans_999999999",
}
# Test keys use the sponsor's templates and topics, and change none: test_templates.py, test_topics.py.
OF_BOTH_MODES = ("/api/v1/templates", "/api/v1/topics")


def ask(program, method, path, vendor):
    body = letter(vendor) if path == "/api/v1/messages" else BODIES.get(path, {})
    headers = {"Idempotency-Key": "very-own-key"} if path == "/api/v1/messages" else {}
    text = json.dumps(body | {"bounce_limit": 5} if method == "patch" else body) if method in ("post", "patch") else ""
    if path.endswith(("/resume", "/retry")):
        path += "?revision=0"
    return program.client.generic(method.upper(), path, text, "application/json", headers=headers)


def rows(sponsor):
    """All that is stored of a sponsor."""
    jobs = Job.objects.filter(sponsor=sponsor)
    found = [
        Session.objects.filter(sponsor=sponsor),
        jobs,
        Message.objects.filter(campaign__in=jobs.values("campaign")),
        Webhook.objects.filter(sponsor=sponsor).defer("secret"),
        WebhookCall.objects.filter(webhook__sponsor=sponsor),
        Template.objects.filter(sponsor=sponsor),
        Topic.objects.filter(sponsor=sponsor),
        TemplateVersion.objects.filter(template__sponsor=sponsor),
        Suppression.objects.filter(sponsor=sponsor),
        RecipientAnswer.objects.filter(sponsor=sponsor),
        Entitlement.objects.filter(sponsor=sponsor),
        Identity.objects.filter(sponsor=sponsor).defer("secret"),
        Draft.objects.filter(sponsor=sponsor),
        Mailcaster.objects.all(),
        RateLimit.objects.all(),
    ]
    return [sorted(map(str, query.values())) for query in found]


@pytest.mark.parametrize(("method", "path"), [one for one in operations() if one[1] != OF_VENDORS])
@pytest.mark.slow("many")
def test_nothing_of_another_sponsor(method, path):
    ours, theirs, vendor = Program(), Program(), api_vendor()
    mine = everything(ours, vendor)
    needed = re.findall(r"{(\w+)}", path)
    assert set(needed) <= set(mine.things), "tests/front/everything.py has nothing for this endpoint yet"
    before = rows(ours.sponsor)
    foreign = ask(theirs, method, path.format(**mine.things), vendor)
    content = foreign.content.decode() + str(foreign.headers)
    assert not [word for word in mine.secrets if word in content], content
    assert rows(ours.sponsor) == before, "nothing has changed"
    if needed:
        problem(foreign, "not-found", 404)
        unknown = ask(theirs, method, path.format(**NOTHING), vendor)
        assert (unknown.status_code, unknown.content) == (404, foreign.content), "foreign looks like not there"
    else:
        assert foreign.status_code < 300, foreign.content
    mine = ask(ours, method, path.format(**mine.things), vendor)
    assert mine.status_code < 300 or mine.json()["type"].endswith(("key-reused", "state-conflict")), mine.content


@pytest.mark.parametrize(
    ("method", "path"), [one for one in operations() if one[1] != OF_VENDORS and not one[1].startswith(OF_BOTH_MODES)]
)
@pytest.mark.slow("many")
def test_nothing_of_live_keys_with_a_test_key(method, path):
    live, vendor = Program(), api_vendor(sandbox=True)
    mine = everything(live, vendor)
    before = rows(live.sponsor)
    test = Program(live.sponsor, "test")
    answer = ask(test, method, path.format(**mine.things), vendor)
    assert not [word for word in mine.secrets if word in answer.content.decode()]
    if "{" in path:
        problem(answer, "not-found", 404)
        assert rows(live.sponsor) == before


@pytest.mark.parametrize(("method", "path"), operations())
def test_no_endpoint_without_a_key(method, path):
    nobody = Program()
    nobody.client.defaults.pop("HTTP_AUTHORIZATION")
    answer = ask(nobody, method, path.format(**NOTHING), api_vendor())
    assert answer.status_code == 401 and answer.headers["Content-Type"] == "application/problem+json"
