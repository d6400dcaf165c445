"""Every page that mailhub shows to people, each with content: its name and its address.

The addresses come from the URL patterns, so a new page is found automatically. The test of all pages fails until this
module names a row for the new page, or excludes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import models
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone, translation
from django.views.csrf import csrf_failure
from django.views.defaults import permission_denied, server_error
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.doors import once
from campaigns.doors.front import keys
from campaigns.engine.doubts import causes
from campaigns.engine.doubts.causes import DoubtLook
from campaigns.lists import intake
from campaigns.models import (
    ApiKey,
    Campaign,
    ComplaintPause,
    CostEntry,
    DispatchRun,
    Draft,
    Identity,
    InboundMessage,
    Job,
    Message,
    MessageEvent,
    RecipientAnswer,
    Resolution,
    Route,
    RouteEntry,
    Sponsor,
    SponsorQuota,
    SponsorTurn,
    Topic,
    Webhook,
    WebhookCall,
)
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.campaigns.rows import accepted, expired, family, in_doubt, logged, recount, refused, suppressed
from tests.front.everything import everything
from tests.front.program import Program, api_vendor
from vendors import prices
from vendors.history import Actor
from vendors.models import Minute, Price, ReceiverDomain, ReceiverLimit, ReceiverWait, Usage, Vendor, VendorChange
from waiter.models import ParkedTask

HTML = "<h1>Hello {{ first_name }}</h1><p>The library opens at <b>nine</b>.</p>"
LIST = (
    "email,first_name\nann@example.org,Ann\nbob@example.org,Bob\nno address,Cy\nBOB@example.org,Bo\ndee@example.org,\n"
)
# URLs that a GET of a browser's window never shows alone.
NO_PAGES = {
    *("logout", "language", "jsi18n", "autocomplete", "view_on_site", "look-save", "look-forget"),
    "vendors_vendorchange_decide",
    # parts that a page loads or polls
    *(
        "home-live",
        "home-days",
        "campaign-live",
        "approval-cost",
        "draft_progress",
        "draft_letter",
        "campaigns_job_live",
    ),
    *("campaigns_job_parts", "operations-pulse", "operations-throughput", "operations-workers", "operations-audit"),
    *("operations-halt", "operations-vendor", "operations-forecast", "operations-shares"),
    # files
    *("campaign-download", "suppression-file", "draft_bad_rows", "draft_letter_pdf", "printed_message"),
    # verbs: their page is the one that they lead to
    *(
        "answer-decide",
        "campaign-copy",
        "draft_list",
        "draft_columns",
        "draft_leave_out",
        "draft_hidden_rows",
        "draft_check_again",
        "draft_test",
        "draft_send",
    ),
    *("draft-typed", "template-typed"),  # the preview of text typed on draft_message and template-edit
    *(
        "draft_delete",
        "template-archive",
        "template-class",
        "template-restore",
        "webhook-rotate",
        "webhook-switch",
        "webhook-redeliver",
    ),
    *("key-extend", "topic-rename", "topic-remove", "topic-archive", "identity-sign", "identity-switch"),
    # shown when a form has been sent: `pressed` has them
    *("webhook-remove", "key-revoke", "vendors_vendor_pause", "vendors_credential_pause", "vendors_credential_try"),
    *("vendors_credential_check", "vendors_credential_receivers"),  # `operators` has them with their credential
}
LOGGED_OUT = {"login", "admin-login", "login-mistake"}
NOWHERE = {"/campaigns/1000000000/", "/admin/nothing/"}


@dataclass
class Rows:
    """The row of each kind with which its page is shown."""

    campaign: Campaign
    waiting: Campaign
    draft: Draft
    sent: Draft
    template: int
    webhook: Webhook
    key: int
    suppression: int
    identity: Identity
    job: Job
    vendor: Vendor
    copied: Draft

    def of(self, route: str) -> dict[str, Any]:
        """The parameters of a pattern."""
        return {
            "campaign_id": self.waiting.pk if "approval" in route else self.campaign.pk,
            "draft_id": self.sent.pk if route.endswith("sent/") else self.draft.pk,
            "vendor_id": self.vendor.pk,
            "number": 1,
            "verb": "stop",
            "channel": "sms",
            "id": User.objects.latest("pk").pk,
            "app_label": "campaigns",
            "pk": {
                "templates": self.template,
                "webhooks": self.webhook.pk,
                "keys": self.key,
                "suppressions": self.suppression,
                "senders": self.identity.pk,
            }.get(route.split("/")[0], 0),
        }


def patterns(of: URLResolver | None = None, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    """All of the project with their routes, but for those of the API."""
    for one in (of or get_resolver()).url_patterns:
        route = before + str(one.pattern)
        if isinstance(one, URLResolver):
            if not route.startswith("api/"):
                yield from patterns(one, route)
        else:
            yield route, one


def owners(rows: Rows) -> dict[str, str]:
    """The pages of campaign owners, and those that recipients see."""
    found = dict[str, str]()
    for route, one in patterns():
        if not route.startswith(("admin/", "unsubscribe/")) and one.name not in NO_PAGES:
            wanted = {name: value for name, value in rows.of(route).items() if name in one.pattern.converters}
            found[str(one.name)] = "/" + str(one.pattern) if not wanted else _filled(route, wanted)
    campaign = reverse("campaign", args=[rows.campaign.pk])
    found |= {f"campaign-{verb}": f"{campaign}{verb}/" for verb in ("pause", "resume", "retry")}
    found |= {
        "campaign-waiting": reverse("campaign", args=[rows.waiting.pk]),
        "campaign-recipients-failed": f"{campaign}recipients/?state=failed",
        "draft_message-copied": reverse("draft_message", args=[rows.copied.pk]),
        "suppressions-second": "/suppressions/?page=2",
        "campaigns-nothing": "/?q=nothing",
        "nothing": "/campaigns/1000000000/",
    }
    return found


def operators(rows: Rows) -> dict[str, str]:
    """The pages of operators; of each kind of row its list, its form, and what Django's admin adds to it."""
    found = dict[str, str]()
    forbidden = set(_not_to_be_added())
    for route, one in patterns():
        if (
            route.startswith("admin/")
            and one.name
            and one.name not in NO_PAGES
            and "object_id" not in route
            and one.name not in forbidden
        ):
            wanted = {
                name: value for name, value in rows.of(route).items() if f":{name}>" in route or f"<{name}>" in route
            }
            found[f"admin-{one.name}"] = _filled(route, wanted)
    found["admin-app_list"] = "/admin/campaigns/"
    for model, of in admin.site._registry.items():
        row = model._default_manager.order_by("-pk").first()
        if row is not None:
            name = f"{model._meta.app_label}_{model._meta.model_name}"
            for what in ("change", "history", *(["delete"] if of.has_delete_permission(_request(), row) else [])):
                found[f"admin-{name}-{what}"] = reverse(f"admin:{name}_{what}", args=[row.pk])
    jobs = "/admin/campaigns/job/"
    found |= {
        "admin-jobs-any": f"{jobs}?date=any",
        "admin-jobs-nothing": f"{jobs}?q=nothing",
        "admin-job-ended": f"{jobs}{rows.job.pk}/change/",
        "admin-messages": f"/admin/campaigns/message/?job={rows.job.pk}",
        "admin-message": f"/admin/campaigns/message/{rows.job.first_message + 2}/change/",
        "admin-check-login": reverse("admin:vendors_credential_check", args=[rows.job.credential_id]),
        "admin-receivers": reverse("admin:vendors_credential_receivers", args=[rows.job.credential_id]),
        "admin-nothing": "/admin/nothing/",
    }
    return found


def _filled(route: str, wanted: dict[str, Any]) -> str:
    for name, value in wanted.items():
        for written in (f"<int:{name}>", f"<slug:{name}>", f"<path:{name}>", f"<str:{name}>", f"<{name}>"):
            route = route.replace(written, str(value))
    return f"/{route}"


def pressed(rows: Rows) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return pages that answer a form: confirmations, pages shown once, and forms with a mistake."""
    jobs, attention = "/admin/campaigns/job/", "/admin/campaigns/message/attention/"
    cause = causes.list_causes(DoubtLook())[0]
    return {
        "found": ("/find/", {"what": Message.objects.get(pk=rows.job.first_message).recipient}),
        "found-nothing": ("/find/", {"what": "nobody@example.org"}),
        "template-preview": (reverse("template", args=[rows.template]), {"first_name": "Ann"}),
        "suppression-looked-up": ("/suppressions/", {"address": "bob@example.org"}),
        "webhook-remove": (reverse("webhook-remove", args=[rows.webhook.pk]), {}),
        "webhook-add-mistake": ("/webhooks/add/", {"url": "nowhere"}),
        "key-made": (
            "/keys/make/",
            {
                "scopes": "read",
                "sponsor": rows.job.sponsor_id,
                "kind": "test",
                "days": "30",
                "once": once.make_form_token(),
            },
        ),
        "key-make-mistake": ("/keys/make/", {}),
        "key-revoke": (reverse("key-revoke", args=[rows.key]), {}),
        "campaign-stop-mistake": (reverse("campaign-decide", args=[rows.campaign.pk, "stop"]), {}),
        "template-edit-mistake": (
            reverse("template-edit", args=[rows.template]),
            {"body": "Hello {{ name", "subject": "{{"},
        ),
        "new_campaign-mistake": ("/campaigns/new/", {"sponsor": rows.job.sponsor_id, "name": "", "text": "{{ name"}),
        "draft_message-two-windows-mistake": (
            reverse("draft_message", args=[rows.draft.pk]),
            {"seen": "1-1-1", "name": "Other hours", "text": "Good day", "by": f"credential:{rows.job.credential_id}"},
        ),
        "suppression-add-mistake": ("/suppressions/add/", {"address": "nowhere"}),
        "suppression-import-mistake": ("/suppressions/import/", {}),
        "identity-edit-mistake": (reverse("identity-edit", args=[rows.identity.pk]), {"from_address": "nowhere"}),
        "identity-add-mistake": ("/senders/add/email/", {"name": "no name", "from_address": "nowhere"}),
        "login-mistake": ("/login/", {"username": "ann", "password": "wrong"}),
        "admin-job-stop": (jobs, {"action": "stop", "_selected_action": rows.waiting.jobs.latest("pk").pk}),
        "admin-job-retry": (jobs, {"action": "retry", "_selected_action": rows.job.pk}),
        "admin-topic-archive": (
            "/admin/campaigns/topic/",
            {"action": "archive", "_selected_action": Topic.objects.latest("pk").pk},
        ),
        "admin-attention-resend": (attention, {"decision": "resend", "cause": cause.key}),
        "admin-vendors_vendor_pause": (reverse("admin:vendors_vendor_pause", args=[rows.vendor.pk]), {}),
        "admin-vendors_credential_pause": (
            reverse("admin:vendors_credential_pause", args=[rows.job.credential_id]),
            {},
        ),
        "admin-parkedtask-cancel": (
            "/admin/waiter/parkedtask/",
            {"action": "cancel", "_selected_action": ParkedTask.objects.latest("pk").pk},
        ),
        "admin-vendor-add-mistake": ("/admin/vendors/vendor/add/", {"slug": "ä"}),
        "admin-route-add-mistake": ("/admin/campaigns/route/add/", {"name": ""}),
    }


def _request() -> HttpRequest:
    request = RequestFactory().get("/")
    request.user = User.objects.filter(is_superuser=True)[0]
    return request


def _not_to_be_added() -> Iterator[str]:
    for model, of in admin.site._registry.items():
        if not of.has_add_permission(_request()):
            yield f"{model._meta.app_label}_{model._meta.model_name}_add"


def errors(language: str) -> dict[str, tuple[int, bytes]]:
    """Pages that say what went wrong: how each is answered."""
    with translation.override(language):
        return _errors()


def _errors() -> dict[str, tuple[int, bytes]]:
    request: HttpRequest = RequestFactory().get("/broken/")
    request.user = User(username="vera")
    denied = permission_denied(request, PermissionError())
    return {
        "error-403": (403, denied.content),
        "error-403-form": (403, csrf_failure(request).content),
        "error-500": (500, server_error(request).content),
    }


def rows(client: Client) -> Rows:
    """An evening with a bit of everything; the client is a superuser's."""
    sponsor = factories.sponsor("City Library")
    other = factories.sponsor("Hooli and Sons of the Very Long Name, Incorporated")
    program = Program(sponsor)
    of_api = api_vendor()
    everything(program, of_api)
    vendor = factories.at_work(factories.vendor("amazingmail", limits=[(5, 60)], casters=["large-only", "small-only"]))
    paused = factories.vendor("a-vendor-with-quite-a-long-name-for-a-slug", limits=[(200, 1), (50_000, 86_400)])
    Vendor.objects.filter(pk=paused.pk).update(paused=True, paused_reason="invoice 4711 has not been paid")
    Vendor.objects.exclude(pk=paused.pk).update(settings={"url": "http://127.0.0.1:9/"})
    login = factories.credential(vendor)
    of = {"of": login, "by": sponsor}
    for status in ("RENDERED", "DISPATCHED", "SENDING", "STOPPED", "READY"):
        factories.campaign_with_job(30, status=status, **of)
    long = factories.campaign(1000, of=login, by=other, name="Appointmentreminderwithoutanyspaceinit" * 3)
    factories.job(long, "READY")
    family(parent="P_ASSIGNING", remaining=40, children=["LOGGED", "SENDING", "DISPATCHED"], each=20)
    full = refused() | {"error_code": "552", "error_sub_type": "5.2.2 mailbox full"}
    shapes = [accepted(), accepted("v-2"), full, refused(), expired(), in_doubt(), suppressed(), accepted("v-3")]
    job = logged(9, shapes, **of)
    soon, wait = timezone.now() + timedelta(hours=1), {"since": timezone.now(), "seconds": 3600.0, "cause": "us"}
    ReceiverWait.objects.create(credential=login, receiver="gmail", until=soon, answer="4.7.28 unusual rate", **wait)
    ReceiverLimit.objects.create(vendor=vendor, receiver="gmail", units=2000, seconds=86_400)
    ReceiverDomain.objects.create(domain="one.invalid", receiver="gmail")
    delivered = Message.objects.filter(id=job.first_message)
    delivered.update(report="delivered", report_at=timezone.now(), report_no=0)
    recount(job)
    _admin_rows(job, vendor)
    _charts(vendor)
    identity = Identity.objects.create(
        sponsor=sponsor,
        name="news",
        channel="email",
        from_name="City Library",
        from_address="news@one.invalid",
        default=True,
    )
    waiting = _waiting(sponsor, login)
    Identity.objects.filter(pk=identity.pk).update(from_name="City Library, Main Street")  # since it was asked for
    keys.create_key(sponsor, "live", ["send", "read"], timezone.now() + timedelta(days=30))
    lists.add_suppressions(
        sponsor.pk,
        "email",
        [NewSuppression("bob@example.org", "stop"), NewSuppression("eve@example.org", "complained")],
    )
    lists.add_suppressions(
        sponsor.pk, "email", [NewSuppression(f"n{n}@example.org", "unsubscribed") for n in range(120)]
    )
    Topic.objects.create(sponsor=sponsor, name="offers", title="Weekly offers")
    for number, body in enumerate((HTML, HTML.replace("nine", "ten")), start=1):
        content = TemplateContent("Hello, {{ first_name }}", body, html=True)
        template = versions.add_version(
            sponsor.pk, "Opening hours", "email", content, Actor("bob"), f"draft {number}"
        ).version
    client.post(reverse("campaign-copy", args=[job.campaign_id]))
    copied = Draft.objects.latest("pk")
    hook = WebhookCall.objects.filter(kind="message.sent").latest("pk").webhook
    draft = make_draft(client, sponsor, login, LIST)
    sent = make_draft(client, sponsor, login, LIST.partition("no address")[0])
    Draft.objects.filter(pk=sent.pk).update(busy=Draft.SENDING, percent=40)
    return Rows(
        job.campaign, waiting, draft, sent, template.template_id, hook, ApiKey.objects.latest("pk").pk,
        _newest("Suppression"), identity, job, vendor, copied,
    )  # fmt: skip


def _newest(name: str) -> int:
    model = next(one for one in admin.site._registry if one.__name__ == name)
    return int(model._default_manager.latest("pk").pk)


def make_draft(client: Client, sponsor: Sponsor, login: Any, text: str) -> Draft:
    """A draft with this list, which was checked; the client is a superuser's."""
    fields = {
        "sponsor": sponsor.pk,
        "name": "Opening hours",
        "subject": "Hello {{ first_name }}",
        "html": HTML,
        "text": "",
    }
    page = client.get("/campaigns/new/", {"sponsor": sponsor.pk}).content.decode()
    key = page.partition('name="key" value="')[2].partition('"')[0]
    answer = client.post("/campaigns/new/", {**fields, "key": key, "by": f"credential:{login.pk}"})
    assert answer.status_code == 302, answer.content.decode()
    draft = Draft.objects.latest("pk")
    file = SimpleUploadedFile("readers.csv", text.encode())
    client.post(reverse("draft_list", args=[draft.pk]), {"seen": draft.seen, "list": file}, follow=True)
    draft.refresh_from_db()
    assert draft.found, "its list has been checked"
    return draft


def _waiting(sponsor: Sponsor, login: Any) -> Campaign:
    """A campaign that waits for another person."""
    Sponsor.objects.filter(pk=sponsor.pk).update(approval_above=1)
    sponsor.refresh_from_db()
    facts: dict[str, Any] = {
        "name": "Winter hours",
        "subject": "We open at nine, {{ name }}",
        "body": HTML,
        "html": True,
    }
    facts["body"] = facts["body"].replace("first_name", "name")
    to: Any = [(f"{name.lower()}@example.org", {"name": name}) for name in ("Cem", "Dora", "Eli")]
    job = intake.store_campaign(sponsor=sponsor, credential=login, recipients=to, by=Actor("bea"), at="now", **facts)
    Sponsor.objects.filter(pk=sponsor.pk).update(approval_above=None)
    return job.campaign


def _charts(vendor: Vendor) -> None:
    minute = timezone.now().replace(second=0, microsecond=0)
    for ago in range(1, 50):
        at = minute - timedelta(minutes=ago)
        Minute.objects.create(vendor=vendor, at=at, share=0, accepted=5 - ago % 2, refused=ago % 9 == 0)


def _admin_rows(job: Job, vendor: Vendor) -> None:
    """Create a row of each kind in the admin that lacks one."""
    today, now = timezone.now().date(), timezone.now()
    Price.objects.create(vendor=vendor, currency="EUR", per_unit="0.07", since=prices.pricing_day(), entered_by="ann")
    Usage.objects.create(vendor=vendor, credential=job.credential, at=now, until=now, units=3)
    VendorChange.objects.create(
        vendor=vendor, fields={"settings": {"url": "http://127.0.0.1:8/"}}, basis="0", asked_name="ann"
    )
    route = Route.objects.create(name="news", channel="email")
    RouteEntry.objects.create(route=route, position=1, credential=job.credential)
    DispatchRun.objects.create(
        vendor=vendor, local_date=today, due_at=now, started_at=now, finished_at=now, dispatched=3
    )
    Resolution.objects.create(
        message_id=job.first_message,
        decision="sent",
        reason="the vendor's list names it",
        decided_by="ann",
        evidence="read timeout",
    )
    factories.claim(factories.campaign_with_job(3, status="SENDING", of=job.credential))
    MessageEvent.objects.create(
        message_id=job.first_message, campaign=job.campaign, resend_no=0, kind="soft_bounce", source="vendor",
        at=now, code="4.2.2", note="mailbox full",
    )  # fmt: skip
    ComplaintPause.objects.create(
        sponsor=job.sponsor, receiver="gmail", since=now, complaints=4, accepted=1000, limit=0.3
    )
    SponsorTurn.objects.create(sponsor=job.sponsor, vendor=vendor, weight=2)
    SponsorQuota.objects.create(sponsor=job.sponsor, vendor=vendor, span="month", measure="messages", most=1_000_000)
    InboundMessage.objects.create(
        vendor=vendor,
        sponsor=job.sponsor,
        name="in-1",
        sender="+447946000001",
        to="+447946000000",
        text="STOP",
        command="stop",
    )
    for number, text in enumerate(("Ich sagte: Schluss damit", "Bis um fünf")):
        RecipientAnswer.objects.create(
            sponsor=job.sponsor, channel="sms", kind="sms", near=not number, name=f"answer {number}", text=text,
            sender="+447946000001", to="+447946000000",
        )  # fmt: skip
    ParkedTask.objects.create(
        due_at=now + timedelta(days=2),
        task="campaigns.tasks.send",
        task_id="t1",
        queue="casters",
        message="{}",
        parked_at=now,
    )
    every = IntervalSchedule.objects.get_or_create(every=7, period="days")[0]
    CrontabSchedule.objects.get_or_create(minute="5", hour="4")
    ClockedSchedule.objects.get_or_create(clocked_time=now)
    SolarSchedule.objects.get_or_create(event="sunset", latitude=52, longitude=13)
    PeriodicTask.objects.get_or_create(name="sweep", task="campaigns.tasks.sweep", interval=every)
    bob = User.objects.create_user("bob", email="bob@example.org", password="a long password")
    bob.groups.set(Group.objects.all())
    assert CostEntry.objects.exists()


def missing() -> list[str]:
    """Kinds of rows in the admin that have none, so whose form would not be looked at."""
    kinds: list[type[models.Model]] = list(admin.site._registry)
    return [one._meta.label for one in kinds if not one._default_manager.exists()]
