"""Tests that no role of a sponsor sees or changes another's rows, on every page and by every form (generated).

The pages come from the URL patterns and the admin's registry (tests/browser/every_page.py). The verbs are the forms
that the pages offer to a user with all rights, and those of the confirmation pages. tests/mailhub/valid_forms.py fills
them in. First a user with the right sends each form in a transaction that is rolled back. This proves the form valid
and effective. Then each role of another sponsor sends the same form. It must change no foreign row, and an address that
names a row must answer that it does not exist. A new URL, action or button fails this test until its form changes
something here, or until a reason against that stands below.

The API is asked in tests/front/test_sponsors.py, with keys of one scope in tests/front/test_scopes.py.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any, TypeVar
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.admin.utils import flatten
from django.contrib.auth.models import Group, User
from django.contrib.messages import get_messages
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.engine.doubts import causes
from campaigns.engine.doubts.causes import DoubtLook
from campaigns.engine.failover import holding
from campaigns.models import (
    Campaign,
    Draft,
    Identity,
    Job,
    Message,
    Route,
    Sponsor,
    Store,
    Template,
    Topic,
    Webhook,
)
from campaigns.operations import pausing
from mailhub.installation import ROLES, create_groups, make_permissions
from mailhub.models import SavedLook
from tests import factories
from tests.browser import every_page
from tests.front.program import fresh
from tests.mailhub.heard_posts import hear_posts
from tests.mailhub.valid_forms import Form, names_row, read_forms
from tests.row_digests import Rows, count_written, digest_rows, find_lost, rows_of, undo
from vendors.history import Actor
from vendors.models import Credential, Vendor
from vendors.said import Said

__all__ = ["fresh"]
T = TypeVar("T")
pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db]
SETTINGS = {"url": "http://127.0.0.1:9/"}
OUTSIDE = ("unsubscribe/", "api/")
MOST_TRIED = 3  # fields of an unchanged form to change one by one until it has an effect
MOST_CANDIDATES = 4  # forms of one kind, on several pages, to try until one has an effect
OF_ONESELF = {"language", "login", "logout", "password_change", "password_change_done"}  # a user, his session
# Sent to URLs without a form: all values that a view might read.
EVERYTHING = {
    **dict.fromkeys(("confirmed", "post", "remove", "delete", "archived"), "yes"),
    "reason": "because",
    "decision": "resend",
    "action": "stop",
    "to": "on",
    "name": "x",
    "answer": "go_on",
}
# Verbs that change no row. Users who may see their rows get some of the rows' data.
LOOK_UPS = {
    *("find", "suppressions", "identity"),
    *("template:preview", "template-version:preview", "template-edit:preview", "template-new:preview"),
}
# Verbs whose forms are sent, too, though the one who may do all changes no row by them here.
UNPROVEN: dict[str, str] = {
    "attention:ask": "it asks the vendor, and there is none",
    "draft_hidden_rows": "only a worker checks a spreadsheet, and no page of these rows has one that hides rows",
    "draft-typed": "it stores nothing: tests/owners/test_typed_letters.py has its 404",
    "template-typed": "it shows what is posted, and stores nothing",
    "template-class": "as it stands it changes nothing: tests/owners/test_template_classes.py has its 404",
    "draft_check": "of what is posted it reads one value, which draft_send's answer to a mistake shows again",
    "vendors_credential_changelist:release_brakes": "no brake is on in these rows; hold_brakes, its twin, is proven",
    "vendors_vendor_changelist:release_brakes": "no brake is on in these rows; hold_brakes, its twin, is proven",
    "django_celery_beat_periodictask_changelist:run_tasks": "it tells the broker, and changes no row",
}
# Forms with a row's number. They answer as for a row just removed, without 404.
LEADS_BACK = {"topic-remove"}
# What concerns no sponsor: nobody who does not see all sponsors may do anything there.
OF_ALL = (
    *("auth_", "django_celery_beat_", "operations-audit", "operations-recover", "waiter_"),
    "vendors_receiverdomain",
)
# The stores after a failover, and those of an installation that was copied.
STORE_STATES: tuple[Callable[[], Any], ...] = (
    lambda: Store.objects.update(timeline="000000AA"),
    lambda: holding.hold_calls(Said("it was copied"), "{}"),
)


@dataclass
class Matrix:
    """The pages and forms about rows of sponsors foreign to the attacker.

    forms: all forms that had an effect; for verbs without effect, one form of each kind. marks: words that identify a
    row of these sponsors.
    """

    pages: dict[str, str]
    forms: list[Form]
    foreign: list[int]
    marks: set[str]


def built(root: Client) -> Matrix:
    """Makes the rows, reads the forms of all pages, and proves each by one who may do all."""
    made = every_page.rows(root)
    pages = {**every_page.owners(made), **every_page.operators(made), **in_states(root, made)}
    pages |= {name: address_of(route, made) for name, route in read_routes().items() if name in every_page.NO_PAGES}
    query = urlencode({"sponsor": made.job.sponsor_id, "channel": "email"})
    pages |= {
        f"{name}-of-sponsor": f"{at}?{query}" for name, at in pages.items() if "?" not in at and not names_row(at)
    }
    Vendor.objects.filter(settings={}).update(settings=SETTINGS)
    Vendor.objects.update(owner=made.job.sponsor)
    Route.objects.update(sponsor=made.job.sponsor)
    found = dict[tuple[Any, ...], dict[str, Form]]()
    for form in read_offered(root, made, pages):
        found.setdefault(form.kind, {}).setdefault(form.action, form)
    marks = read_marks()
    valid, unproven = list[Form](), list[Form]()
    for candidates in found.values():
        some = list(candidates.values())[:MOST_CANDIDATES]
        best = next((proven for one in some if (proven := find_valid(root, one, marks))), None)
        (valid if best else unproven).append(best or some[0])
    proven = {form.verb for form in valid}
    forms = valid + [form for form in unproven if form.verb not in proven]
    of_stores = {form.verb for state in STORE_STATES for form in undo(lambda state=state: after(root, state))[0]}
    seen = {form.verb for form in forms} | of_stores
    assert_each_is_a_verb_or_has_a_reason(root, made, seen, proven | of_stores)
    return Matrix(pages, forms, list(Sponsor.objects.values_list("pk", flat=True)), marks)


def in_states(root: Client, made: every_page.Rows) -> dict[str, str]:
    """Makes rows in states that only some verbs are for. Returns their pages."""
    library, now, ann = made.job.sponsor, timezone.now(), Actor("ann")
    user = User.objects.get(username="root")
    SavedLook.objects.create(user=user, name="All nights", address="/admin/campaigns/job/?date=any")
    old = versions.add_version(
        library.pk, "Former hours", "email", TemplateContent("Hello", "Good day"), ann
    ).version.template
    versions.archive_template(old, ann)
    Topic.objects.create(sponsor=library, name="former", title="Former letters", archived_at=now)
    outdated = every_page.make_draft(root, library, made.job.credential, every_page.LIST)
    Draft.objects.filter(pk=outdated.pk).update(subject="Changed since its list was checked")
    Credential.objects.filter(vendor=made.vendor).update(asked_wait=3600, retry_after_until=now + timedelta(hours=1))
    cause = causes.list_causes(DoubtLook())[0].key
    found = {
        "template-archived": reverse("template", args=[old.pk]),
        "draft_recipients-outdated": reverse("draft_recipients", args=[outdated.pk]),
        "admin-attention-cause": f"{reverse('admin:attention')}?{urlencode({'cause': cause})}",
        "admin-jobs-of-all-days": "/admin/campaigns/job/?date=any",
    }
    for status in ("READY", "SENDING", "DISPATCHED"):
        job = Job.objects.filter(status=status, parent=None, sponsor=library).earliest("pk")
        if status == "READY":
            pausing.pause_jobs([job.pk], ann, "the picture is missing")
        for verb in ("pause", "resume", "stop"):
            found[f"campaign-{verb}-{status}"] = reverse("campaign-decide", args=[job.campaign_id, verb])
    unused = Vendor.objects.create(slug="spare-letters", name="Spare letters", adapter="http", settings=SETTINGS)
    login = factories.credential(made.vendor, "spare-login")
    sender = Identity.objects.create(sponsor=library, name="spare", channel="email", from_address="spare@one.invalid")
    for row in (unused, login, sender, Sponsor.objects.create(name="Spare readers")):
        name = f"{row._meta.app_label}_{row._meta.model_name}"
        found[f"{name}_delete-spare"] = reverse(f"admin:{name}_delete", args=[row.pk])
    return found


def read_offered(root: Client, made: every_page.Rows, pages: dict[str, str]) -> Iterator[Form]:
    """Return the forms of all pages, also of answers to forms; lists without an action are left out."""
    answers = [(at, root.get(at)) for at in dict.fromkeys(pages.values())]
    answers += [(at, root.post(at, data)) for at, data in every_page.pressed(made).values()]
    for at, answer in answers:
        for form in read_forms(answer, at):
            if form.name not in OF_ONESELF and not form.verb.endswith("_changelist"):
                yield form


def after(root: Client, state: Callable[[], Any]) -> list[Form]:
    """The forms that are offered, and change something, once the stores are held to be in this state."""
    state()
    at = reverse("operations-recover")
    some = [form for form in read_forms(root.get(at), at) if form.name == "operations-recover"]
    return [valid for form in some if (valid := find_valid(root, form, set()))]


def undo_by(client: Client, step: Callable[[], T]) -> tuple[T, int]:
    """Undo a step of the client, and restore its cookies, because the database knows their session."""
    kept = copy(client.cookies)
    try:
        return undo(step)
    finally:
        client.cookies = kept


def find_valid(client: Client, form: Form, marks: set[str], deep: int = 2) -> Form | None:
    """The form as it changes something: as it is, as a page asks for it once more, or with a changed field.

    A look-up changes nothing: as it shows something of the rows.
    """
    answer, rows = undo_by(client, lambda: form.send(client))
    if rows or form.verb in LOOK_UPS:
        return form if rows or find_marks(answer, marks, f"{form.values}") else None
    again = [one for one in read_forms(answer, form.action) if one.verb == form.verb and one.values != form.values]
    for one in again if deep else ():
        if found := find_valid(client, one, marks, deep - 1):
            return found
    for name in form.texts[:MOST_TRIED]:
        old = dict(form.values)[name]
        other = form.typed(name, str(int(old) + 1) if old.isdecimal() else f"{old}x")
        if undo_by(client, lambda other=other: other.send(client))[1]:
            return other
    return None


def assert_each_is_a_verb_or_has_a_reason(
    root: Client, made: every_page.Rows, seen: set[str], proven: set[str]
) -> None:
    """A URL that may be posted to was seen to change something, or it is said above why not; and nothing else is."""
    stock, wanted = of_models()
    routes = read_routes()
    known = proven | {one.partition(":")[0] for one in proven}
    asked = routes.keys() - stock - known - OF_ONESELF
    with hear_posts(root) as client:
        listening = {name for name in asked if is_listening(client, name, address_of(routes[name], made))}
    missing = (listening | wanted) - known
    assert missing | seen - proven == UNPROVEN.keys(), "a valid form of it changes something here, or there is a reason"


def is_listening(client: Client, name: str, at: str) -> bool:
    """Return True if a URL reads data posted to it. Asserts that it stores none of the data."""
    answer, rows = undo_by(client, lambda: client.post(at, EVERYTHING))
    assert rows == 0, f"{name} stores what is posted: let a form of it be seen here"
    return bool(answer.wsgi_request.is_heard)


def read_routes() -> dict[str, str]:
    """The URLs of people by their names, as their patterns are written."""
    found = {str(one.name): route for route, one in every_page.patterns() if one.name}
    return {name: route for name, route in found.items() if not route.startswith(OUTSIDE)}


def of_models() -> tuple[set[str], set[str]]:
    """Return the admin's URLs for each kind of rows, and the verbs offered there to a user with all rights."""
    request: Any = RequestFactory().get("/admin/")
    request.user = User.objects.get(username="root")
    stock, verbs = set[str](), set[str]()
    for model, page in admin.site._registry.items():
        name, row = f"{model._meta.app_label}_{model._meta.model_name}", model._default_manager.order_by("-pk").first()
        assert row is not None, f"there is a {name}"
        stock |= {f"{name}_{one}" for one in ("changelist", "add", "history", "delete", "change")}
        verbs |= {f"{name}_{one}" for one in ("add", "delete") if getattr(page, f"has_{one}_permission")(request)}
        verbs |= {f"{name}_changelist:{action}" for action in page.get_actions(request)}
        verbs |= {f"{name}_changelist"} if page.list_editable else set()
        if page.has_change_permission(request, row):
            fields = set(flatten(page.get_fields(request, row))) - set(page.get_readonly_fields(request, row))
            verbs |= {f"{name}_change"} if fields else set()
    return stock, verbs


def address_of(route: str, made: every_page.Rows) -> str:
    """Where a pattern leads to with the rows that there are."""
    if "(?P" in route:  # of the admin's list of an application
        return "/admin/campaigns/"
    wanted = {**made.of(route), "job_id": made.job.pk, "kind": "csv"}
    if route.startswith("admin/"):
        wanted["pk"] = made.job.first_message
    return re.sub(r"<(?:\w+:)?(\w+)>", lambda found: str(wanted.get(found[1], 1)), f"/{route}")


def read_marks() -> set[str]:
    """Return the words that identify data of the foreign sponsors."""
    found = {
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
    return {one for one in found if len(one) > 4}


def person(of: Sponsor, groups: Iterable[str]) -> Client:
    user = User.objects.create(username=factories.unique("person"), is_staff=True)
    user.groups.set(Group.objects.filter(name__in=groups))
    of.users.add(user)
    client = Client()
    client.force_login(user)
    return client


def find_marks(answer: HttpResponse, marks: set[str], typed: str = "") -> list[str]:
    """Return the foreign sponsors' data in an answer, besides typed text; includes messages for the next page."""
    if answer.streaming:
        content = b"".join(answer.streaming_content).decode(errors="replace")
    else:
        content = answer.content.decode(errors="replace")
    content += str(answer.headers) + " ".join(map(str, get_messages(answer.wsgi_request)))  # type: ignore[attr-defined]
    return [one for one in marks if one in content and one not in typed]


@dataclass
class Attack:
    """A user with a role at another sponsor, who requests data of the foreign sponsors."""

    role: str
    client: Client
    made: Matrix
    before: Rows
    theirs: dict[str, set[Any]]

    def find_faults(self, name: str, ask: Callable[[], HttpResponse], typed: str, is_open: bool) -> list[Any]:
        """Send the request and undo its changes. Returns the foreign sponsors' data that it shows or changes.

        is_open: it may be answered as if it were about rows of one's own.
        """

        def step() -> tuple[HttpResponse, list[str], list[str]]:
            written = count_written()
            answer = ask()
            marks = find_marks(answer, self.made.marks, typed)
            if count_written() == written:  # looking at all rows takes longer than most requests
                return answer, marks, []
            more = [table for table, some in rows_of(self.made.foreign).items() if some != self.theirs[table]]
            return answer, marks, find_lost(self.before) + more

        (answer, marks, lost), written = undo_by(self.client, step)
        found: list[Any] = [("shows", marks)] if marks else []
        found += [("changes", lost)] if lost else []
        is_right = is_open or (is_refused(answer) and not written)
        found += [] if is_right else [("answers", answer.status_code, written)]
        return [(self.role, name, *one) for one in found]

    def find_faults_of_page(self, name: str, at: str) -> list[Any]:
        return self.find_faults(name, lambda: self.client.get(at), at, is_open=not names_row(at))

    def find_faults_of_form(self, form: Form) -> list[Any]:
        is_open = form.verb in LEADS_BACK or not (names_row(form.action) or form.name.startswith(OF_ALL))
        return self.find_faults(
            form.verb, lambda: form.send(self.client), f"{form.values} {form.action}", is_open=is_open
        )


def is_refused(answer: HttpResponse) -> bool:
    """Return True if the answer denies the page or its existence; Django's admin leads to its first page then."""
    leads = answer.status_code == 302 and answer.headers["Location"] == "/admin/"
    return leads or answer.status_code in (403, 404, 405)


@pytest.mark.timeout(1500)
def test_no_role_of_another_sponsor_sees_or_changes_anything() -> None:
    make_permissions()
    create_groups()
    root = Client()
    root.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    made = built(root)
    assert len(made.forms) > 100 and len(made.pages) > 150, "the test reads nothing"
    assert all(find_marks(root.get(at), made.marks) for at in ("/", "/admin/vendors/vendor/")), "who may see them does"

    alpha = Sponsor.objects.create(name="Alpha")
    roles = [name for name in ROLES if name != "all sponsors"]
    visitors = [("all groups", person(alpha, roles)), *((one, person(alpha, [one])) for one in roles)]
    rows = digest_rows(), rows_of(made.foreign)
    attacks = [Attack(role, client, made, *rows) for role, client in visitors]
    # Pages refused to a user with all roles are not tried with a single role.
    shown = {name: at for name, at in made.pages.items() if not is_refused(attacks[0].client.get(at))}
    found = list[Any]()
    for attack in attacks:
        for name, at in (made.pages if attack is attacks[0] else shown).items():
            found += attack.find_faults_of_page(name, at)
        for form in made.forms:
            found += attack.find_faults_of_form(form)
    for state in STORE_STATES:
        found += undo(lambda state=state: find_faults_after(root, state, attacks))[0]
    assert found == [], "\n".join(map(str, found))


def find_faults_after(root: Client, state: Callable[[], Any], attacks: list[Attack]) -> list[Any]:
    """The faults of the forms that there are in this state of the stores, which concern no sponsor."""
    forms, found = after(root, state), list[Any]()
    for form, attack in product(forms, attacks):
        answer, written = undo_by(attack.client, lambda form=form, attack=attack: form.send(attack.client))
        found += [(attack.role, form.verb, written)] if written or not is_refused(answer) else []
    return found
