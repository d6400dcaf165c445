"""A rule of a table that a form of the admin can break is told in a sentence of its own, in the reader's language."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import CheckConstraint, Q
from django.test import Client, RequestFactory
from django.utils import translation

from campaigns.models import SponsorTurn
from campaigns.models.sharing import WEIGHT_MAX
from mailhub.model_texts import OURS
from tests import factories

pytestmark = pytest.mark.django_db


def checks_of_forms(user: User) -> Iterator[Any]:
    """The checks of our tables with a column that the admin's forms, or the rows within them, store."""
    admin.autodiscover()
    request = RequestFactory().get("/")
    request.user = user
    for model, page in admin.site._registry.items():
        if not (page.has_add_permission(request) or page.has_change_permission(request, model())):
            continue
        rows = [one(model, admin.site) for one in page.inlines]
        forms = [(model, page.get_form(request))] + [(one.model, one.get_formset(request).form) for one in rows]
        for of, form in forms:
            if of._meta.app_label in OURS:
                checks = (one for one in of._meta.constraints if isinstance(one, CheckConstraint))
                yield from (one for one in checks if set(columns_of(one.condition)) & set(form.base_fields))


def columns_of(condition: Any) -> Iterator[str]:
    for one in condition.children:
        if isinstance(one, Q):
            yield from columns_of(one)
        else:
            yield one[0].partition("__")[0]


def test_each_check_of_a_table_that_a_form_stores_has_its_sentence(admin_user: User) -> None:
    checks = {one.name: one.violation_error_message for one in checks_of_forms(admin_user)}
    assert {"sponsor_turn_weight", "mailcaster_sizes", "receiver_growth", "price_positive"} <= set(checks)
    bare = CheckConstraint.default_violation_error_message
    assert [name for name, said in checks.items() if said == bare] == []


def test_a_weight_of_0_is_told_in_the_language_of_the_page(admin_client: Client) -> None:
    vendor, sponsor = factories.vendor(), factories.sponsor()
    form = {"sponsor": sponsor.pk, "vendor": vendor.pk, "weight": 0}
    page = admin_client.post("/admin/campaigns/sponsorturn/add/", form)
    assert f"The weight must be a whole number from 1 to {WEIGHT_MAX}." in page.text
    assert "is violated" not in page.text and not SponsorTurn.objects.exists()
    with translation.override("de"):
        assert (
            "sponsor_turn_weight"
            not in admin_client.post("/admin/campaigns/sponsorturn/add/", form, headers={"Accept-Language": "de"}).text
        )


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"percentage": 0}, "The percentage must be above 0 and at most 100."),
        ({"min_size": 0}, "The smallest part must have at least 1 message."),
        ({"min_size": 20, "max_size": 10}, "The largest part must not be smaller than the smallest one."),
    ],
)
def test_a_mailcaster_that_the_table_would_refuse(admin_client: Client, typed: dict[str, Any], sentence: str) -> None:
    good = {"vendor": factories.vendor().pk, "name": "MC9", "kind": "small-only", "min_size": 1, "max_size": 10}
    page = admin_client.post("/admin/vendors/mailcaster/add/", {**good, "percentage": 3, **typed})
    assert sentence in page.text and "is violated" not in page.text
