"""The admin of vendors: secrets go in and never come out; what the pipeline writes is not overwritten."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests import factories
from vendors.models import Credential, RateLimit, Vendor

pytestmark = pytest.mark.django_db
URL = {"url": "http://127.0.0.1:1/letters"}


@pytest.fixture
def admin_user(db: None) -> User:
    """Without a password: hashing one takes longer than a test."""
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


def form(**changes: Any) -> dict[str, Any]:
    """A vendor's page as the browser posts it, without rows in its inlines."""
    inlines = {f"{name}-{count}": 0 for name in ("limits", "mailcasters") for count in ("TOTAL_FORMS", "INITIAL_FORMS")}
    fields = {
        "slug": "v",
        "name": "V",
        "channel": "email",
        "adapter": "http",
        "settings": '{"url": "http://127.0.0.1:1/letters"}',
        "small_audience_threshold": 100,
        "min_requests": 20,
        "min_ratio": 0.8,
        "health_ttl": 600,
        "floor": 10,
        "retry_after": 60,
        "dispatch_at": "18:00",
        "time_zone": "UTC",
        "weekdays": "1,2,3",
        "catch_up": "6:00:00",
    }
    return {**inlines, **fields, **changes}


def login_form(**changes: Any) -> dict[str, Any]:
    return {"limits-TOTAL_FORMS": 0, "limits-INITIAL_FORMS": 0, "name": "login", **changes}


def errors(response: Any) -> str:
    return str(response.context["errors"])


class TestVendor:
    def test_the_adapter_judges_the_settings(self, admin_client: Client) -> None:
        page = admin_client.post("/admin/vendors/vendor/add/", form(settings='{"colour": "red"}'))
        assert "colour is not a setting" in errors(page) and "url is missing" in errors(page)
        admin_client.post("/admin/vendors/vendor/add/", form(settings='{"url": "http://a/", "concurrency": "3"}'))
        assert Vendor.objects.get(slug="v").settings == {"url": "http://a", "concurrency": 3}

    @pytest.mark.parametrize(
        ("field", "typed"), [("catch_up", "0"), ("catch_up", "-1:00:00"), ("weekdays", "1,8"), ("weekdays", "0")]
    )
    def test_what_the_command_refuses_of_a_night_is_refused_here(
        self, admin_client: Client, field: str, typed: str
    ) -> None:
        page = admin_client.post("/admin/vendors/vendor/add/", form(**{field: typed}))
        assert field in page.context["adminform"].form.errors and not Vendor.objects.exists()

    def test_only_the_changed_fields_are_written_for_the_pipeline_writes_others(self, admin_client: Client) -> None:
        row = factories.vendor("v", settings=URL)
        with CaptureQueriesContext(connection) as seen:
            admin_client.post(f"/admin/vendors/vendor/{row.pk}/change/", form(name="New", weekdays="1,2,3,4,5,6,7"))
        (update,) = [query["sql"] for query in seen if query["sql"].startswith('UPDATE "vendors_vendor"')]
        assert '"name"' in update and "generation" not in update and "limits_version" not in update
        row.refresh_from_db()
        assert (row.name, row.slug) == ("New", "v")

    def test_a_limit_says_its_price_and_belongs_to_the_vendor_alone(self, admin_client: Client) -> None:
        row = factories.vendor("v", settings=URL, limits=[(5, 60)])
        of_login = RateLimit.objects.create(vendor=row, credential=factories.credential(row), units=1, seconds=60)
        page = admin_client.get(f"/admin/vendors/vendor/{row.pk}/change/")
        assert "units × seconds / (seconds + the vendor's latency)" in page.content.decode()
        (limits, *_) = page.context["inline_admin_formsets"]
        assert [one.original.units for one in limits if one.original] == [5]
        assert of_login.units == 1

    def test_the_list_shows_limits_without_a_statement_for_each(
        self, admin_client: Client, django_assert_max_num_queries: Any
    ) -> None:
        for _ in range(6):
            factories.vendor(limits=[(5, 60)])
        with django_assert_max_num_queries(7):
            assert "5 per 60 s" in admin_client.get("/admin/vendors/vendor/").content.decode()


class TestCredential:
    def test_a_secret_is_never_shown_and_an_empty_field_keeps_it(self, admin_client: Client) -> None:
        row = factories.credential(factories.vendor(settings=URL), "login", secret={"X-Key": "s3cr3t-value"})
        page = f"/admin/vendors/credential/{row.pk}/change/"
        assert "s3cr3t-value" not in admin_client.get(page).content.decode()
        assert admin_client.post(page, login_form(exclusive="on")).status_code == 302
        row = Credential.objects.get(pk=row.pk)
        assert (row.secret, row.exclusive) == ({"X-Key": "s3cr3t-value"}, True)

    def test_a_new_secret_replaces_it(self, admin_client: Client) -> None:
        row = factories.credential(factories.vendor(settings=URL), "login", secret={"X-Key": "old"})
        admin_client.post(f"/admin/vendors/credential/{row.pk}/change/", login_form(secret='{"X-Key": "new"}'))
        assert Credential.objects.get(pk=row.pk).secret == {"X-Key": "new"}

    @pytest.mark.parametrize(
        ("typed", "complaint"),
        [
            ('{"Host": "typed-secret"}', "must not set the header Host"),
            ('["typed-secret"]', "one JSON object whose values are texts"),
            ("typed-secret", "Enter a valid JSON"),
        ],
    )
    def test_a_secret_that_cannot_be_used_is_not_shown_again(
        self, admin_client: Client, typed: str, complaint: str
    ) -> None:
        vendor = factories.vendor(settings=URL)
        page = admin_client.post("/admin/vendors/credential/add/", login_form(vendor=vendor.pk, secret=typed))
        assert complaint in errors(page)
        assert "typed-secret" not in page.content.decode()
        assert not vendor.credentials.exists()

    @pytest.mark.parametrize("at", ["vendor", "credential"])
    def test_two_limits_of_one_window_are_refused_in_a_sentence(self, admin_client: Client, at: str) -> None:
        row = factories.credential(factories.vendor("v", settings=URL), "login")
        typed = {"limits-0-units": 5, "limits-0-seconds": 60, "limits-1-units": 6, "limits-1-seconds": 60}
        posted = (form if at == "vendor" else login_form)(**typed, **{"limits-TOTAL_FORMS": 2})
        page = admin_client.post(f"/admin/vendors/{at}/{row.vendor_id if at == 'vendor' else row.pk}/change/", posted)
        assert "Two limits have the same window" in page.content.decode() and not RateLimit.objects.exists()

    def test_a_limit_of_a_credential_is_stored_with_its_vendor(self, admin_client: Client) -> None:
        row = factories.credential(factories.vendor(settings=URL), "login")
        limit = {"limits-TOTAL_FORMS": 1, "limits-0-units": 5, "limits-0-seconds": 60, "limits-0-credential": row.pk}
        admin_client.post(f"/admin/vendors/credential/{row.pk}/change/", login_form(**limit))
        (stored,) = row.limits.all()
        assert (stored.vendor_id, stored.units, stored.seconds) == (row.vendor_id, 5, 60.0)
