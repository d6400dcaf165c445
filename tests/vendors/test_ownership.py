"""A vendor belongs to the installation or to a sponsor, and who may see and change it follows its owner."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from campaigns.models import DispatchRun, Entitlement, Route, Sponsor
from mailhub.installation import create_groups, make_permissions
from tests import factories
from tests.vendors.test_admin import form, login_form
from vendors.models import Credential, Mailcaster, Price, RateLimit, Usage, Vendor
from waiter.models import ParkedTask

pytestmark = pytest.mark.django_db
URL = {"url": "http://127.0.0.1:1/letters"}
ADMIN = "/admin/vendors"


@pytest.fixture
def user_of(db: None) -> Callable[..., Client]:
    """Logs in somebody of these sponsors with the groups of an installation."""
    make_permissions()
    create_groups()

    def made(sponsors: list[Sponsor], *groups: str) -> Client:
        user = User.objects.create(username=factories.unique("person"), is_staff=True)
        user.groups.set(Group.objects.filter(name__in=groups))
        user.sponsors.set(sponsors)  # type: ignore[attr-defined]
        client = Client()
        client.force_login(user)
        return client

    return made


@pytest.fixture
def alpha() -> Sponsor:
    return Sponsor.objects.create(name="Alpha")


@pytest.fixture
def beta() -> Sponsor:
    return Sponsor.objects.create(name="Beta")


def owned(by: Sponsor | None, slug: str) -> Vendor:
    """A vendor with a bit of everything; nobody is entitled to it."""
    vendor = Vendor.objects.create(slug=slug, name=f"{slug} Ltd", adapter="http", settings=URL, owner=by)
    login = factories.credential(vendor, f"login-of-{slug}", secret={"X-Key": f"secret-of-{slug}"})
    RateLimit.objects.create(vendor=vendor, units=5, seconds=60)
    RateLimit.objects.create(vendor=vendor, credential=login, units=4, seconds=60)
    factories.caster(vendor, f"MC-of-{slug}")
    now = timezone.now()
    Price.objects.create(vendor=vendor, currency="EUR", per_unit="0.07", since=now.date(), entered_by=slug)
    Usage.objects.create(vendor=vendor, credential=login, at=now, until=now, units=3)
    DispatchRun.objects.create(vendor=vendor, local_date=now.date(), due_at=now, dispatched=77)
    return vendor


def rows_of(vendor: Vendor) -> list[Any]:
    return [
        vendor,
        vendor.credentials.get(),
        vendor.mailcasters.get(),
        vendor.prices.get(),
        *RateLimit.objects.filter(vendor=vendor),
        Usage.objects.get(vendor=vendor),
        DispatchRun.objects.get(vendor=vendor),
    ]


def page(row: Any, verb: str = "change") -> str:
    return f"/admin/{row._meta.app_label}/{row._meta.model_name}/{row.pk}/{verb}/"


@pytest.mark.parametrize("group", ["vendor admin", "operator", "auditor"])
@pytest.mark.slow("many")
def test_users_of_a_sponsor_see_of_vendors_those_that_it_owns(
    user_of: Callable[..., Client], alpha: Sponsor, beta: Sponsor, group: str
) -> None:
    mine, theirs, ours = owned(alpha, "own"), owned(beta, "theirs"), owned(None, "shared")
    factories.entitle([alpha], [ours])
    client = user_of([alpha], group)
    for row in rows_of(mine):
        assert client.get(page(row)).status_code == 200, row
        listed = client.get(f"/admin/{row._meta.app_label}/{row._meta.model_name}/").content.decode()
        assert "own" in listed or row._meta.model_name == "usage"
        for foreign in ("theirs", "shared"):
            assert foreign not in listed, (row, foreign)
    for row in [*rows_of(theirs), *rows_of(ours)]:
        for verb in ("change", "history", "delete"):
            answer = client.get(page(row, verb))
            assert answer.status_code in (302, 403, 404) and "theirs" not in answer.content.decode(), (row, verb)
    for one in (theirs, ours):
        assert client.get(f"/admin/operations/vendors/{one.pk}/").status_code == 404
        assert client.get(f"/admin/operations/vendors/{one.pk}/forecast/?limit=1/60").status_code == 404
    assert client.get(f"/admin/operations/vendors/{mine.pk}/").status_code == 200


def test_a_vendor_admin_of_one_sponsor_repoints_pauses_and_empties_no_vendor_of_another(
    user_of: Callable[..., Client], alpha: Sponsor, beta: Sponsor
) -> None:
    client = user_of([alpha], "vendor admin")
    repointed = form(settings='{"url": "http://127.0.0.1:2/mine"}', name="Mine")

    def attack(vendor: Vendor) -> None:
        login, caster = vendor.credentials.get(), vendor.mailcasters.get()
        client.post(page(vendor), repointed)
        client.post(page(login), login_form(secret='{"X-Key": "mine"}'))
        client.post(page(login, "delete"), {"post": "yes"})
        client.post(f"{ADMIN}/credential/add/", login_form(vendor=vendor.pk, name="mine", secret='{"X-Key": "a"}'))
        client.post(f"{ADMIN}/vendor/{vendor.pk}/pause/", {"confirmed": "1", "was": "running", "reason": "mine"})
        client.post(page(caster, "delete"), {"post": "yes"})
        client.post(
            f"{ADMIN}/mailcaster/add/",
            {"vendor": vendor.pk, "name": "mine", "kind": "small-only", "min_size": 1, "max_size": 2, "percentage": 3},
        )
        client.post(
            f"{ADMIN}/price/add/",
            {"vendor": vendor.pk, "since": "2040-01-01", "currency": "EUR", "per_unit": "1", "per_message": 0},
        )

    def state(vendor: Vendor) -> Any:
        tables = (Vendor.objects.filter(pk=vendor.pk), *(
            model.objects.filter(vendor=vendor) for model in (Credential, Mailcaster, RateLimit, Price)
        ))  # fmt: skip
        return [list(table.order_by("pk").values()) for table in tables]

    for foreign in (owned(beta, "theirs"), owned(None, "shared")):
        factories.entitle([alpha, beta], [foreign])
        before = state(foreign)
        attack(foreign)
        assert state(foreign) == before
    mine = owned(alpha, "own")
    before = state(mine)
    attack(mine)
    changed = [old != new for old, new in zip(before, state(mine), strict=True)]
    assert changed == [True, True, True, False, True], "the same forms change a vendor of one's own"
    assert Vendor.objects.get(pk=mine.pk).paused


def test_only_who_governs_a_vendor_lets_a_sponsor_use_it_or_ends_that(
    user_of: Callable[..., Client], alpha: Sponsor, beta: Sponsor
) -> None:
    mine, theirs, ours = owned(alpha, "own"), owned(beta, "theirs"), owned(None, "shared")
    client, add = user_of([alpha], "vendor admin"), "/admin/campaigns/entitlement/add/"
    shown = client.get(add).content.decode()
    assert "own" in shown and "theirs" not in shown and "shared" not in shown
    for foreign in (theirs, ours):
        login = foreign.credentials.get()
        client.post(add, {"sponsor": alpha.pk, "vendor": foreign.pk, "credential": "", "urgent": "single"})
        client.post(add, {"sponsor": alpha.pk, "vendor": foreign.pk, "credential": login.pk, "urgent": "single"})
    client.post(add, {"sponsor": beta.pk, "vendor": mine.pk, "credential": "", "urgent": "single"})
    assert not Entitlement.objects.exists()
    client.post(add, {"sponsor": alpha.pk, "vendor": mine.pk, "credential": "", "urgent": "single"})
    (of_own,) = Entitlement.objects.all()
    assert (of_own.sponsor, of_own.vendor) == (alpha, mine)

    given = Entitlement.objects.create(sponsor=alpha, vendor=ours)
    lent = Entitlement.objects.create(sponsor=beta, vendor=mine)
    for row in (given, lent, of_own):
        client.post(page(row, "delete"), {"post": "yes"})
    assert list(Entitlement.objects.all()) == [given]


def test_a_route_leads_over_credentials_that_its_sponsor_may_use(
    user_of: Callable[..., Client], alpha: Sponsor, beta: Sponsor
) -> None:
    theirs, ours = owned(beta, "theirs"), owned(None, "shared")
    factories.entitle([alpha], [ours])
    client, add = user_of([alpha], "vendor admin"), "/admin/campaigns/route/add/"

    def route(vendor: Vendor) -> dict[str, Any]:
        entry = {"entries-0-position": 1, "entries-0-credential": vendor.credentials.get().pk, "entries-0-weight": 0}
        management = {"entries-TOTAL_FORMS": 1, "entries-INITIAL_FORMS": 0}
        return {"sponsor": alpha.pk, "name": "news", "channel": "email", "patience": 60, **management, **entry}

    assert "theirs" not in client.get(add).content.decode()
    client.post(add, route(theirs))
    assert not Route.objects.exists()
    client.post(add, route(ours))
    assert Route.objects.get().entries.get().credential.vendor == ours


def test_a_vendor_admin_of_a_sponsor_adds_vendors_of_that_sponsor_alone_and_gives_none_away(
    user_of: Callable[..., Client], alpha: Sponsor, beta: Sponsor
) -> None:
    client = user_of([alpha], "vendor admin")
    for owner in ("", beta.pk):
        client.post(f"{ADMIN}/vendor/add/", form(owner=owner))
    assert not Vendor.objects.exists()
    client.post(f"{ADMIN}/vendor/add/", form(owner=alpha.pk))
    made = Vendor.objects.get()
    assert made.owner == alpha
    for owner in ("", beta.pk):
        client.post(page(made), form(owner=owner, name="Again"))
    made.refresh_from_db()
    assert (made.owner, made.name) == (alpha, "Again")


def test_the_installations_people_govern_every_vendor_and_say_whose_it_is(
    user_of: Callable[..., Client], alpha: Sponsor, beta: Sponsor
) -> None:
    theirs = owned(beta, "theirs")
    client = user_of([], "vendor admin", "all sponsors")
    assert client.get(page(theirs)).status_code == 200
    answer = client.post(page(theirs), form(owner="", settings='{"url": "http://127.0.0.1:1/letters"}'))
    assert answer.status_code == 302
    theirs.refresh_from_db()
    assert theirs.owner is None


def test_parked_tasks_have_no_sponsor_and_are_for_the_installations_people(
    user_of: Callable[..., Client], alpha: Sponsor
) -> None:
    now = timezone.now()
    ParkedTask.objects.create(
        due_at=now + timedelta(days=2), task="campaigns.tasks.send", task_id="t1", queue="vendor.theirs", message="{}",
        parked_at=now,
    )  # fmt: skip
    row = ParkedTask.objects.get()
    act = {"action": "cancel", "_selected_action": row.pk, "confirmed": "1"}
    for group in ("viewer", "operator", "auditor", "vendor admin"):
        client = user_of([alpha], group)
        for path in ("", f"{row.pk}/change/", f"{row.pk}/history/"):
            assert client.get(f"/admin/waiter/parkedtask/{path}").status_code == 403, (group, path)
        assert client.post("/admin/waiter/parkedtask/", act).status_code == 403
        assert "parkedtask" not in client.get("/admin/").content.decode()
        assert client.get("/admin/").context["pulse"].parked_total == 0
    assert ParkedTask.waiting.exists()
    client = user_of([], "operator", "all sponsors")
    assert client.get(f"/admin/waiter/parkedtask/{row.pk}/change/").status_code == 200
    client.post("/admin/waiter/parkedtask/", act)
    assert not ParkedTask.waiting.exists()


def test_the_operations_page_tells_users_of_a_sponsor_of_vendors_that_it_may_use_and_not_how_much_others_do(
    user_of: Callable[..., Client], alpha: Sponsor, beta: Sponsor
) -> None:
    mine, _theirs, ours = owned(alpha, "own"), owned(beta, "theirs"), owned(None, "shared")
    factories.entitle([alpha, beta], [ours])
    Vendor.objects.filter(pk=ours.pk).update(paused=True, paused_reason="Beta has not paid")
    factories.campaign_with_job(40, of=ours.credentials.get(), by=beta, status="DISPATCHED")
    job = factories.campaign_with_job(3, of=ours.credentials.get(), by=alpha, status="DISPATCHED")
    client = user_of([alpha], "operator")
    answer = client.get("/admin/")
    rows = {row.vendor.pk: row for row in answer.context["pulse"].vendors}
    assert set(rows) == {mine.pk, ours.pk}
    assert rows[mine.pk].governed and not rows[ours.pk].governed
    assert (rows[ours.pk].waiting, rows[ours.pk].jobs, rows[ours.pk].total) == (3, 0, 0)
    assert rows[ours.pk].state == "vendor paused"
    for path in ("/admin/", "/admin/campaigns/job/?date=any", page(job), "/admin/campaigns/message/attention/"):
        text = client.get(path).content.decode()
        assert "theirs" not in text and "has not paid" not in text, path
        assert not re.search(r"(?<![\w:.])43(?![\w:.])", text), path  # no time, no token
    assert "Beta has not paid" in user_of([], "operator", "all sponsors").get(page(job)).content.decode()


def test_a_command_says_whose_a_vendor_is(alpha: Sponsor) -> None:
    add = ["vendor", "add", "own", "--adapter", "http", "--set", "url=http://127.0.0.1:1/"]
    call_command(*add, "--owner", "Alpha")
    assert Vendor.objects.get().owner == alpha and not Entitlement.objects.exclude(sponsor=alpha).exists()
    call_command("vendor", "set", "own", "--owner", "")
    assert Vendor.objects.get().owner is None
    with pytest.raises(CommandError, match="no sponsor 'Gamma'"):
        call_command("vendor", "set", "own", "--owner", "Gamma")
