"""GET /services, the commands of a vendor's health, and the API's own pages."""

import io
import json
import re

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.management import CommandError, call_command
from django.test import Client

from tests.front.program import Program, api_vendor, fresh, letter
from vendors import health
from vendors.health import HealthPolicy
from vendors.models import Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


def command(*args):
    out = io.StringIO()
    call_command("vendor", *args, stdout=out)
    return out.getvalue()


@pytest.fixture
def ill():
    """A vendor with 40 good answers of 100."""
    vendor = api_vendor(slug="ill", limits=[(5, 60)], min_requests=20, min_ratio=0.8, retry_after=30)
    health.health_store(settings.REDIS_URL).note(vendor.pk, HealthPolicy.of(vendor), 40, 60)
    yield vendor
    health.health_store(settings.REDIS_URL).reset(vendor.pk)


def test_every_vendor_says_whether_it_takes_work(ill):
    program = Program()
    program.send(letter(api_vendor(slug="well")))
    api_vendor(slug="zz", paused=True, paused_reason="stocktaking", retry_after=9)
    first, second, third = program.get("services").json()["data"]
    assert (first["slug"], first["accepting"], first["ratio"]) == ("ill", False, 0.4)
    assert 15 < first["retry_after"] <= 30
    assert (first["good"], first["bad"], first["threshold"], first["limits"]) == (40, 60, 0.8, ["5/60"])
    assert (second["slug"], second["accepting"], second["retry_after"]) == ("well", True, None)
    assert (second["waiting"], second["ratio"]) == (1, None)
    assert (third["accepting"], third["paused"], third["retry_after"]) == (False, "vendor paused: stocktaking", 9)


def test_the_command_shows_and_changes_the_terms_and_they_are_in_force_at_once(ill):
    terms = r"closed for (\d+) s, 40% good of 100; 80% of at least 20 answers in 600 s"
    said = re.search(terms, command("status", "ill"))
    assert said and 15 < int(said[1]) <= 30
    status = json.loads(command("status", "ill", "--min-ratio", "0.3", "--retry-after", "5", "--json"))
    assert (status["state"], status["ratio"], status["min_ratio"], status["retry_after"]) == ("open", 0.4, 0.3, 5)
    assert Vendor.objects.get(slug="ill").min_ratio == 0.3


def test_a_share_that_cannot_be_is_refused(ill):
    with pytest.raises(CommandError, match="min_ratio"):
        command("status", "ill", "--min-ratio", "80")


def test_reset_forgets_the_answers(ill):
    assert "forgotten" in command("reset", "ill")
    assert "open, no answers yet" in command("status", "ill")


def test_the_documentation_comes_from_our_own_files_alone():
    page = Client().get("/api/v1/docs").content.decode()
    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(files) >= 3 and all(file.startswith("/static/") for file in files), files
    assert all(finders.find(file.removeprefix("/static/")) for file in files)
    assert "//" not in re.sub(r"https?://www.w3.org", "", page)


def test_every_endpoint_is_behind_a_key_but_for_what_vendors_sign():
    schema = Client().get("/api/v1/openapi.json").json()
    assert len(schema["paths"]) > 6
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            assert "401" in {str(code) for code in operation["responses"]}, path
            assert operation.get("security") or path == "/api/v1/receipts/{vendor}", path
