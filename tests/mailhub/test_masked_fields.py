"""Tests that look-ups, orders and searches in the admin reveal no masked or omitted values."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db.models import Field, Model
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from campaigns.doors.admin_base import Scoped
from campaigns.models import Identity, InboundMessage, Message, Resolution, Sponsor, Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from mailhub import installation
from tests import factories
from tests.campaigns.rows import accepted, in_doubt, logged
from vendors.listing import OwnLookups
from vendors.models import Credential, EncryptedJSONField, Vendor

pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db]
ROLES = ("viewer", "vendor admin")  # roles that may not see the recipients of messages
admin.autodiscover()  # whichever tests run with these
OURS = {model: page for model, page in admin.site._registry.items() if model._meta.app_label in installation.APPS}
SUFFIXES = ("", "__exact", "__iexact", "__startswith", "__icontains", "__iregex", "__gt", "__in", "__isnull", "__name")
MARK = "zanzibar"  # stands in every masked value and nowhere else
AWAY = 2  # relations between a page's model and a masked field


@pytest.fixture(params=ROLES)
def person(request: pytest.FixtureRequest, client: Client) -> Client:
    user = User.objects.create(username="pat", is_staff=True)
    user.groups.set(Group.objects.filter(name__in=(request.param, "all sponsors")))
    client.force_login(user)
    return client


@pytest.fixture
def marked() -> dict[type[Model], Any]:
    """One row of every model that has masked fields, with the mark in all of them."""
    report = {"report": "bounced", "report_at": timezone.now(), "report_no": 0, "report_note": f"{MARK}: unknown"}
    login = factories.credential(secret={"Authorization": MARK})
    job = logged(2, [{**accepted(), **report, "error_sub_type": f"<{MARK}@a.example>"}, in_doubt()])
    Message.objects.update(recipient=f"{MARK}@a.example", params={"name": MARK})
    row = Message.objects.get(pk=job.first_message)
    settled = Resolution.objects.create(message=row, decision="sent", reason="seen", evidence=f"<{MARK}@a.example>")
    lists.add_suppressions(None, "email", [NewSuppression(f"{MARK}@a.example", "by_hand")])
    fields = {"name": "1", "sender": f"{MARK}@a.example", "to": "+1", "text": MARK}
    written = InboundMessage.objects.create(vendor=login.vendor, **fields)
    rows = {Message: row, Resolution: settled, Credential: login, Suppression: Suppression.objects.get()}
    return {**rows, InboundMessage: written}


def masked(model: type[Model]) -> Iterator[Field]:
    """Its fields that these people may not see."""
    page = OURS.get(model)
    telling = page.telling if isinstance(page, Scoped) else ()
    for field in model._meta.fields:
        if field.name in telling or isinstance(field, EncryptedJSONField) or field.name == "password":
            yield field


def paths(model: type[Model], away: int = AWAY) -> Iterator[str]:
    """Every masked field that a look-up on the model's list could name."""
    yield from (field.name for field in masked(model))
    for related in model._meta.get_fields() if away else ():
        if related.is_relation and related.related_model:
            yield from (f"{related.name}__{rest}" for rest in paths(related.related_model, away - 1))


def address(model: type[Model], what: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{what}", args=args)


def refused(user: User, model: type[Model], look: str) -> bool:
    """Return True if the model's list refuses that look-up. The user's rights are read once for all look-ups."""
    try:
        listed(user, model, {look: "a"})
    except (DisallowedModelAdminLookup, PermissionDenied):
        return True
    return False


def listed(user: User, model: type[Model], asked: dict[str, str]) -> Any:
    """The answer of the model's list before a page is made of it, which takes most of the time."""
    request = RequestFactory().get(address(model), asked)
    request.user = user
    return OURS[model].changelist_view(request)


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
class TestLists:
    def test_a_page_of_ours_takes_only_the_look_ups_of_its_filters(self, model: type[Model]) -> None:
        page: Any = OURS[model]
        assert isinstance(page, OwnLookups)
        hidden = {field.name for field in masked(model)}
        assert not any(name.split("__")[0] in hidden for name in page._own_lookups)

    def test_no_look_up_reads_a_masked_field(self, person: Client, model: type[Model]) -> None:
        looks = [path + suffix for path in paths(model) for suffix in SUFFIXES]
        user = User.objects.get(username="pat")
        assert [look for look in looks if not refused(user, model, look)] == []
        for look in looks[:1]:
            assert person.get(address(model), {look: "a"}).status_code in (400, 403), "and so the browser is told"

    def test_no_list_is_in_the_order_of_a_masked_field(self, person: Client, model: type[Model]) -> None:
        hidden = {field.name for field in masked(model)}
        user = User.objects.get(username="pat")
        for column in range(12):
            with suppress(PermissionDenied):
                shown = listed(user, model, {"o": f"{column}"}).context_data["cl"]
                assert not hidden & {str(by).lstrip("-") for by in shown.queryset.query.order_by}

    def test_no_field_but_the_key_is_what_a_popup_chooses(self, person: Client, model: type[Model]) -> None:
        for field in masked(model):
            asked = {"_popup": "1", "_to_field": field.name}
            assert person.get(address(model), asked).status_code in (400, 403)
            assert person.get(address(model, "change", "1"), asked).status_code in (400, 403)

    def test_what_is_searched_for_is_not_found_in_a_masked_field(
        self, person: Client, marked: Any, model: type[Model]
    ) -> None:
        of_campaign = {"campaign": marked[Message].campaign_id} if model is Message else {}
        for asked in ({}, of_campaign):
            response = person.get(address(model), {"q": MARK, **asked})
            assert (
                response.status_code == 403 or not response.context["cl"].result_count or not OURS[model].search_fields
            )
        for field in model._meta.get_fields():
            if field.is_relation and field.concrete:
                source = {"app_label": model._meta.app_label, "model_name": model._meta.model_name}
                for asked in ({}, of_campaign, {"campaign": "1"}):
                    params = {**source, "field_name": field.name, "term": MARK, **asked}
                    response = person.get(reverse("admin:autocomplete"), params)
                    assert response.status_code in (403, 404) or response.json()["results"] == []


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_every_link_of_a_filter_is_a_look_up_that_is_taken(
    admin_client: Client, marked: Any, model: type[Model]
) -> None:
    lists = admin_client.get(address(model)).context.get("cl")
    if lists is None:  # the page of costs has a form of its own
        assert admin_client.get(address(model), {"o": "1"}).status_code == 403
        return
    links = [
        choice["query_string"]
        for spec in lists.filter_specs
        for choice in spec.choices(lists)
        if "query_string" in choice
    ]
    assert [link for link in links if admin_client.get(address(model) + link).status_code != 200] == []


@pytest.mark.parametrize("model", [Message, Resolution, Credential], ids=lambda model: model.__name__)
def test_no_page_shows_a_masked_value(person: Client, marked: Any, model: type[Model]) -> None:
    pk = marked[model].pk
    for page in (address(model), *(address(model, what, pk) for what in ("change", "history", "delete"))):
        assert MARK not in person.get(page).content.decode(), page
    assert MARK not in person.get(reverse("admin:attention")).content.decode().lower()


def test_the_paths_to_masked_fields_are_not_overlooked() -> None:
    assert {"recipient", "params", "resolutions__evidence"} <= set(paths(Message))
    assert "message__recipient" in set(paths(Resolution)) and "users__password" in set(paths(Sponsor))
    assert "credentials__secret" in set(paths(Vendor)) and "secret" in set(paths(Credential))


@pytest.mark.parametrize("role", installation.ROLES)
def test_no_role_reads_a_stored_secret_on_its_page(client: Client, role: str) -> None:
    """Django shows whoever may only look each field of a form as text."""
    user = User.objects.create(username="olga", is_staff=True)
    user.groups.set(Group.objects.filter(name__in=(role, "all sponsors")))
    client.force_login(user)
    of_sponsor = {"sponsor": factories.sponsor(), "name": "news", "from_address": "a@b.example"}
    rows = [
        factories.credential(secret={"Authorization": MARK}),
        Identity.objects.create(**of_sponsor, secret={"private_key": MARK}),
    ]
    for row in rows:
        response = client.get(address(type(row), "change", row.pk))
        assert response.status_code in (200, 403) and MARK not in response.content.decode()
