"""A NUL character, which PostgreSQL has not in its texts, is refused at every door instead of ending in a failure."""

import pytest
from django.contrib.admin.sites import site
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests import factories
from tests.front.everything import operations
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
NAMES = ("q", "vendor", "sponsor", "status", "date", "page", "o", "at", "campaign", "credential", "_changelist_filters")


@pytest.fixture
def browser() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create(username="admin", is_staff=True, is_superuser=True))
    return client


@pytest.mark.parametrize("name", NAMES)
def test_a_page_refuses_it_in_each_parameter(browser: Client, name: str) -> None:
    factories.campaign_with_job(1)
    pages = [reverse("admin:index")]
    pages += [reverse(f"admin:{one._meta.app_label}_{one._meta.model_name}_changelist") for one in site._registry]
    assert len(pages) > 10
    assert {page: browser.get(page, {name: "a\0b"}).status_code for page in pages} == dict.fromkeys(pages, 400)


def test_a_form_with_it_is_refused(browser: Client) -> None:
    answer = browser.post(reverse("admin:campaigns_job_changelist"), {"action": "stop\0", "_selected_action": "1"})
    assert answer.status_code == 400


def test_an_address_with_it_leads_nowhere(browser: Client) -> None:
    assert browser.get("/admin/campaigns/job/%00/change/").status_code == 404


@pytest.mark.parametrize(("method", "path"), [one for one in operations() if one[0] == "get" and "{" not in one[1]])
def test_the_api_names_the_parameter(method: str, path: str) -> None:
    found = problem(Program().get(f"{path}?vendor=%00"), "validation", 422)
    assert found["errors"] == [{"parameter": "vendor", "code": "nul", "detail": "a NUL character is in it"}]


def test_in_an_address_of_the_api_nothing_is_found() -> None:
    problem(Program().get("sessions/%00"), "not-found", 404)


def test_a_reference_is_one_line_without_signs_that_control_something() -> None:
    """It is shown, exported and posted to programs."""
    program, vendor = Program(), api_vendor()
    for sign in ("\r\n", "\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\u2028", "\u2029"):
        body = letter(vendor, recipients=[{"to": "ann@sandbox.example", "reference": f"a{sign}b"}])
        assert pointers(program.send(body)) == {"/recipients/0/reference": "one-line"}, repr(sign)
        assert pointers(program.send(body, path="/api/v1/messages?dry_run=true")) == {
            "/recipients/0/reference": "one-line"
        }
    for fair in ("order 7", "Größe\xa07", "注文\u30007", "👩‍👧"):
        sent = program.send(letter(vendor, recipients=[{"to": "ann@sandbox.example", "reference": fair}]))
        assert sent.status_code in (200, 202), sent.content
