"""No role of a sponsor sees or changes anything of another: every page and every form of people, generated.

The pages are those of the URL patterns and of the admin's registry (tests/browser/every_page.py). The forms are those
that the pages themselves offer to somebody who may do all, with their hidden versions, and those of the pages that ask
once more. Each is sent by somebody who may, in a transaction that is rolled back: so it is known that it is valid, and
changes something. Then each role of another sponsor sends the same form. A URL that is added makes this fail until one
of its forms changes something here, or it is said below that it has none. The API is asked in
tests/front/test_sponsors.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import Resolver404, resolve

from campaigns.models import Campaign, Identity, Message, Route, Sponsor, Template, Webhook
from mailhub.installation import ROLES, create_groups, make_permissions
from tests import factories
from tests.browser import every_page
from tests.front.program import fresh
from vendors.models import Credential, Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
# Forms that concern nobody's rows, and those by which a user changes himself.
NOBODYS = (
    "/login/",
    "/logout/",
    "/language/",
    "/admin/login/",
    "/admin/logout/",
    "/admin/password_change/",
    "/admin/looks/",
)
OUTSIDE = ("unsubscribe/", "api/")
UNWATCHED = {"django_session", "django_admin_log", "mailhub_savedlook", "auth_user", "django_migrations"}
TYPED = {"reason": "because", "remark": "seen", "address": "zoe@example.net", "total": "1", "text": "Good day"}
LIST = b"email,first_name\nzoe@example.net,Zoe\n"
# URLs of pages and files that have no form of their own, or none in a state that the rows of this test are in.
LOOKS = {
    "app_list", "approval-cost", "approvals", "autocomplete", "campaign", "campaign-download", "campaign-failures",
    "campaign-live", "campaign-parts", "campaign-recipients", "campaign-report", "campaigns_approval_add",
    "campaigns_approval_delete", "campaigns_campaign_add", "campaigns_campaign_delete", "campaigns_claim_add",
    "campaigns_claim_delete", "campaigns_costentry_add", "campaigns_costentry_delete", "campaigns_dispatchrun_add",
    "campaigns_dispatchrun_delete", "campaigns_identity_delete", "campaigns_inboundmessage_add",
    "campaigns_inboundmessage_delete", "campaigns_job_add", "campaigns_job_change", "campaigns_job_delete",
    "campaigns_job_live", "campaigns_job_parts", "campaigns_message_add", "campaigns_message_delete",
    "campaigns_messageevent_add", "campaigns_messageevent_delete", "campaigns_resolution_add",
    "campaigns_resolution_delete", "campaigns_sponsor_delete", "campaigns_suppression_delete", "draft_bad_rows",
    "draft_check", "draft_check_again", "draft_letter", "draft_letter_pdf", "draft_preview", "draft_progress",
    "draft_recipients", "draft_sent", "drafts", "home", "home-live", "identities", "index", "jsi18n", "keys",
    "language", "login", "logout", "look-forget", "look-save", "operations", "operations-audit",
    "operations-forecast", "operations-halt", "operations-pulse", "operations-recover", "operations-throughput",
    "operations-vendor", "operations-workers", "password_change", "password_change_done", "printed_message",
    "suppression-export", "suppression-file", "template-differences", "template-restore", "templates",
    "vendors_credential_delete", "vendors_price_delete", "vendors_ratelimit_add", "vendors_ratelimit_delete",
    "vendors_usage_add", "vendors_usage_delete", "vendors_vendor_delete", "vendors_vendorchange_add",
    "vendors_vendorchange_delete", "view_on_site", "waiter_parkedtask_add", "waiter_parkedtask_delete", "webhook",
    "webhooks",
}  # fmt: skip
# URLs whose forms are sent, too, but were not seen to write a row: look-ups, decisions that no row is in the state for,
# forms that need more than a filled box. Those about vendors are proven in tests/vendors/test_ownership.py.
UNPROVEN = {
    "auth_group_changelist", "auth_user_add", "auth_user_change", "auth_user_changelist",
    "auth_user_password_change", "campaigns_approval_change", "campaigns_approval_changelist",
    "campaigns_campaign_change", "campaigns_campaign_changelist", "campaigns_claim_change",
    "campaigns_claim_changelist", "campaigns_costentry_change", "campaigns_dispatchrun_change",
    "campaigns_dispatchrun_changelist", "campaigns_entitlement_add", "campaigns_entitlement_change",
    "campaigns_entitlement_changelist", "campaigns_identity_add", "campaigns_identity_changelist",
    "campaigns_inboundmessage_change", "campaigns_inboundmessage_changelist", "campaigns_message_change",
    "campaigns_message_changelist", "campaigns_messageevent_change", "campaigns_messageevent_changelist",
    "campaigns_resolution_change", "campaigns_resolution_changelist", "campaigns_route_add",
    "campaigns_route_changelist", "campaigns_sponsor_changelist", "campaigns_suppression_add",
    "campaigns_suppression_change", "campaigns_suppression_import", "campaigns_topic_add",
    "django_celery_beat_clockedschedule_add", "django_celery_beat_clockedschedule_changelist",
    "django_celery_beat_crontabschedule_changelist", "django_celery_beat_intervalschedule_add",
    "django_celery_beat_intervalschedule_changelist", "django_celery_beat_periodictask_add",
    "django_celery_beat_solarschedule_add", "django_celery_beat_solarschedule_changelist", "draft_delete", "find",
    "identity", "identity-add", "suppression-import", "suppressions", "template", "template-edit", "template-new",
    "template-version", "topics", "vendors_credential_add", "vendors_credential_change",
    "vendors_credential_changelist", "vendors_mailcaster_add", "vendors_mailcaster_changelist", "vendors_price_add",
    "vendors_price_change", "vendors_price_changelist", "vendors_ratelimit_change", "vendors_ratelimit_changelist",
    "vendors_usage_change", "vendors_usage_changelist", "vendors_vendor_add", "vendors_vendor_change",
    "vendors_vendor_changelist", "vendors_vendorchange_change", "vendors_vendorchange_changelist", "webhook-add",
}  # fmt: skip
MOST_TRIED = 3  # fields of an unchanged form that are changed one by one until it is seen to change something


@dataclass(frozen=True)
class Form:
    """A form as a browser would send it."""

    action: str
    values: tuple[tuple[str, str], ...]
    files: tuple[str, ...] = ()
    texts: tuple[str, ...] = field(default=(), compare=False)  # fields that somebody types into

    @property
    def name(self) -> str:
        """Of its URL pattern; empty: there is none."""
        try:
            return resolve(urlsplit(self.action).path).url_name or ""
        except Resolver404:
            return ""

    @property
    def key(self) -> tuple[Any, ...]:
        """Forms of one kind: for the same URL, with the same fields and the same button."""
        last = self.values[-1:] if self.values and self.values[-1][0] in ("action", "decision", "verdict", "to") else ()
        place = urlsplit(self.action).path if self.name == "campaign-decide" else self.name
        return place, last, frozenset(name for name, _ in self.values), self.files

    def send(self, client: Client) -> HttpResponse:
        data: dict[str, Any] = {}
        for name, value in self.values:
            data.setdefault(name, []).append(value)
        for name in self.files:
            data[name] = SimpleUploadedFile("list.csv", LIST)
        return client.post(self.action, data)  # type: ignore[return-value]

    def typed(self, name: str, value: str) -> "Form":
        return replace(self, values=tuple((one, value if one == name else old) for one, old in self.values))


class Forms(HTMLParser):
    """Reads the forms of a page that are sent by POST: one for each of its buttons."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at, self.found = at, list[Form]()
        self._inside = False
        self._select: list[Any] | None = None
        self._area = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        got = {name: value or "" for name, value in attrs}
        if tag == "form" and got.get("method", "").lower() == "post":
            self._begin(got)
        elif self._inside and "disabled" not in got and (read := self._readers().get(tag)):
            read(got)

    def _readers(self) -> dict[str, Any]:
        return {
            "input": self._input,
            "button": self._button,
            "textarea": self._textarea,
            "select": self._chooser,
            "option": self._option,
        }

    def _begin(self, got: dict[str, str]) -> None:
        self._inside, self._action = True, urljoin(self.at, got.get("action", ""))
        self._values: list[tuple[str, str]] = []
        self._buttons: list[tuple[str, str]] = []
        self._files: list[str] = []
        self._texts: list[str] = []
        self._choices: list[tuple[str, list[str]]] = []

    def _button(self, got: dict[str, str]) -> None:
        if got.get("name") and got.get("type") != "button":
            self._buttons.append((got["name"], got.get("value", "")))

    def _input(self, got: dict[str, str]) -> None:
        name, kind = got.get("name", ""), got.get("type", "text")
        if kind == "submit":
            self._button(got)
        elif kind == "file":
            self._files.append(name)
        elif kind in ("checkbox", "radio"):
            first = kind == "radio" and name not in dict(self._values)
            if "checked" in got or first or name == "_selected_action":
                self._values = [one for one in self._values if kind == "checkbox" or one[0] != name]
                self._values.append((name, got.get("value", "on")))
        elif name:
            self._values.append((name, got.get("value", "")))
            if kind != "hidden":
                self._texts.append(name)

    def _textarea(self, got: dict[str, str]) -> None:
        self._area, self._typed = got.get("name", ""), ""
        self._texts.append(self._area)

    def _chooser(self, got: dict[str, str]) -> None:
        self._select = [got.get("name", ""), [], []]

    def _option(self, got: dict[str, str]) -> None:
        if self._select is not None:
            self._select[1].append(got.get("value", ""))
            if "selected" in got:
                self._select[2].append(got.get("value", ""))

    def handle_data(self, data: str) -> None:
        if self._area:
            self._typed += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area:
            self._values.append((self._area, self._typed.removeprefix("\n").replace("\r\n", "\n")))
            self._area = ""
        elif tag == "select" and self._select is not None:
            name, offered, chosen = self._select
            if self._inside and name == "action":
                self._choices.append((name, [one for one in offered if one]))
            elif self._inside and offered:
                first = (
                    offered[0] if "-" in name else next((one for one in offered if one), "")
                )  # a row to add stays empty
                self._values += [(name, one) for one in chosen or [first]]
            self._select = None
        elif tag == "form" and self._inside:
            self._inside = False
            self.found += self._made()

    def _made(self) -> Iterator[Form]:
        values = [(name, value or TYPED.get(name, "")) for name, value in self._values]
        extra = [[("action", one)] for name, offered in self._choices for one in offered] or [
            [button] for button in self._buttons if not button[0].startswith(("_addanother", "_continue", "_saveasnew"))
        ]
        for more in extra or [[]]:
            yield Form(self._action, (*values, *more), tuple(self._files), tuple(self._texts))


def forms_of(page: HttpResponse, at: str) -> list[Form]:
    if page.streaming or "html" not in page.headers.get("Content-Type", ""):
        return []
    reader = Forms(at)
    reader.feed(page.content.decode())
    return [one for one in reader.found if not urlsplit(one.action).path.startswith(NOBODYS)]


def rows() -> dict[tuple[str, str], str]:
    """A digest of every row that there is."""
    tables = sorted({one._meta.db_table for one in apps.get_models()} - UNWATCHED)
    parts = [f"SELECT '{one}', coalesce(to_json(t)->>'id', ''), md5(t::text) FROM {one} t" for one in tables]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts))
        return {(table, pk): digest for table, pk, digest in cursor.fetchall()}


WRITTEN = """SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_xact_user_tables
WHERE NOT relname = ANY(%s)"""


def written() -> int:
    """How many rows this transaction has written so far, also those that were undone."""
    with connection.cursor() as cursor:
        cursor.execute(WRITTEN, [sorted(UNWATCHED)])
        return int(cursor.fetchone()[0])


def changes(client: Client, form: Form) -> tuple[bool, HttpResponse]:
    """Whether the form, sent by this client, writes a row; all that it did is undone."""
    before = written()
    with transaction.atomic():
        answer = form.send(client)
        transaction.set_rollback(True)
    return written() > before, answer


@dataclass
class Matrix:
    """The pages and valid forms about rows of sponsors that the attacker has nothing to do with."""

    pages: dict[str, str]
    forms: list[Form]
    names: set[str]  # of URL patterns with a form
    changing: set[str]
    foreign: list[int]
    marks: set[str]


def built() -> Matrix:
    make_permissions()
    create_groups()
    User.objects.create(username="root", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(User.objects.get(username="root"))
    made = every_page.rows(client)
    library = made.job.sponsor
    Vendor.objects.update(owner=library)
    Route.objects.update(sponsor=library)
    foreign = list(Sponsor.objects.values_list("pk", flat=True))
    pages = {**every_page.owners(made), **every_page.operators(made)}
    found = dict[tuple[Any, ...], Form]()
    for at in pages.values():
        for form in forms_of(client.get(at), at):
            found.setdefault(form.key, form)
    for at, data in every_page.pressed(made).values():
        for form in forms_of(client.post(at, data), at):
            found.setdefault(form.key, form)
    valid, names, changing = list[Form](), set[str](), set[str]()
    for form in found.values():
        names.add(form.name)
        best, moved = _valid(client, form)
        valid.append(best)
        if moved:
            changing.add(form.name)
    marks = {
        *Sponsor.objects.values_list("name", flat=True),
        *Vendor.objects.values_list("slug", flat=True),
        *Campaign.objects.values_list("name", flat=True),
        *Identity.objects.values_list("from_address", flat=True),
        *Webhook.objects.values_list("url", flat=True),
        *Template.objects.values_list("name", flat=True),
        *Message.objects.filter(recipient__contains="@example").values_list("recipient", flat=True),
        *(name for name in Credential.objects.values_list("name", flat=True) if name != "default"),
        "invoice 4711",
    }
    return Matrix(pages, valid, names, changing, foreign, {one for one in marks if len(one) > 4})


def _valid(client: Client, form: Form, deep: int = 2) -> tuple[Form, bool]:
    """The form as it changes something: as it is, as a page asks for it once more, or with a changed field."""
    moved, answer = changes(client, form)
    if moved:
        return form, True
    asked = [one for one in forms_of(answer, form.action) if one.values != form.values] if deep else []
    for one in asked:
        if one.name == form.name and (found := _valid(client, one, deep - 1))[1]:
            return found
    tried = [name for name in form.texts if name][:MOST_TRIED]
    for name in tried:
        old = dict(form.values).get(name, "")
        other = form.typed(name, str(int(old) + 1) if old.isdecimal() else f"{old}x")
        if changes(client, other)[0]:
            return other, True
    return form, False


def rows_of(sponsors: list[int]) -> dict[str, set[Any]]:
    """The rows that are these sponsors', by their table."""
    kinds: list[Any] = [one for one in apps.get_models() if hasattr(one._default_manager, "of_sponsors")]
    return {one._meta.db_table: set(one.objects.of_sponsors(sponsors).values_list("pk", flat=True)) for one in kinds}


def person(of: Sponsor, *groups: str) -> Client:
    user = User.objects.create(username=factories.unique("person"), is_staff=True)
    user.groups.set(Group.objects.filter(name__in=groups))
    of.users.add(user)
    client = Client()
    client.force_login(user)
    return client


def seen(answer: HttpResponse, marks: set[str], typed: str = "") -> list[str]:
    """What an answer has of the foreign sponsors, besides what was typed."""
    if answer.streaming:
        content = b"".join(answer.streaming_content).decode(errors="replace")
    else:
        content = answer.content.decode(errors="replace")
    content += str(answer.headers)
    return [one for one in marks if one in content and one not in typed]


@pytest.mark.timeout(1500)
def test_no_role_of_another_sponsor_sees_or_changes_anything() -> None:
    made = built()
    every = {str(one.name) for route, one in every_page.patterns() if one.name and not route.startswith(OUTSIDE)}
    lists = {name for name in every if name.endswith(("_history", "_changelist"))}
    assert every - made.names - lists <= set(LOOKS), (
        "a form of it changes something here, or it is said that it has none"
    )
    assert made.names - made.changing <= set(UNPROVEN), "a valid form of it is sent here"
    assert len(made.changing) > 40 and len(made.pages) > 150, "the test reads nothing"

    root = Client()
    root.force_login(User.objects.get(username="root"))
    assert all(seen(root.get(at), made.marks) for at in ("/", "/admin/vendors/vendor/")), "who may see them finds marks"

    alpha = Sponsor.objects.create(name="Alpha")
    before, theirs = rows(), rows_of(made.foreign)
    roles = [name for name in ROLES if name != "all sponsors"]
    attacker, found = person(alpha, *roles), list[Any]()
    for name, at in made.pages.items():
        if marks := seen(attacker.get(at), made.marks, at):
            found.append(("page", name, marks))
    for groups in ([one] for one in roles):
        client = person(alpha, *groups)
        for form in made.forms:
            if marks := seen(form.send(client), made.marks, str(form.values) + form.action):
                found.append((groups, form.name, marks))
    for form in made.forms:
        if marks := seen(form.send(attacker), made.marks, str(form.values) + form.action):
            found.append(("all groups", form.name, marks))
    assert found == []
    after = rows()
    assert [key for key, digest in before.items() if after.get(key) != digest] == [], "no row has changed or is gone"
    assert rows_of(made.foreign) == theirs, "nor has a foreign sponsor a row more"
