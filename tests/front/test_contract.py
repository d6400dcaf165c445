"""The API keeps its own contract: whatever comes, no 5xx, no answer that the schema does not name (schemathesis)."""

import os

import pytest
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from campaigns.models import Session
from tests.front.everything import OF_VENDORS, everything, operations
from tests.front.program import Program, api_vendor, fresh

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"
SCHEMA = "/api/v1/openapi.json"
FEW = hypothesis_settings(
    max_examples=100 if NIGHTLY else 10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def schema(django_db_setup, django_db_blocker):
    """Read once: what schemathesis looks up in it, and in our own code, is the same for all tests.

    It is imported when it is used: that takes a second of a processor, and one process of a run has these tests.
    """
    import schemathesis

    with django_db_blocker.unblock():  # the request closes what the test before has left
        return schemathesis.openapi.from_wsgi(SCHEMA, get_wsgi_application())


@pytest.fixture(scope="module")
def left_out():
    """What the schema cannot say: that a vendor exists, that an address is one. So good data may be refused."""
    from schemathesis.checks import CHECKS, load_all_checks

    load_all_checks()
    return [CHECKS.get_one("positive_data_acceptance")]


@pytest.mark.parametrize(("method", "path"), operations())
def test_whatever_comes_the_answer_is_one_that_the_schema_names(schema, left_out, method, path):
    program = Program(requests_per_minute=0)
    api_vendor()

    @FEW
    @given(case=schema[path][method].as_strategy())
    def ask(case):
        case.call_and_validate(headers={"Authorization": f"Bearer {program.token}"}, excluded_checks=left_out)

    ask()


def test_any_text_for_a_vendor_that_is_there_is_stored_or_refused(schema, left_out):
    program, vendor = Program(requests_per_minute=0), api_vendor(channel="print")
    names = iter(range(10_000))

    @FEW
    @given(case=schema["/api/v1/messages"]["post"].as_strategy())
    def ask(case):
        if isinstance(case.body, dict):
            asked = {name: value for name, value in case.body.items() if name not in ("channel", "template")}
            case.body = {"body": "Good day"} | asked | {"vendor": vendor.slug}
        headers = {"Authorization": f"Bearer {program.token}", "Idempotency-Key": f"key {next(names)}"}
        case.call_and_validate(headers=headers, excluded_checks=left_out)

    ask()
    assert Session.objects.exists(), "some were good"


@pytest.mark.parametrize(("method", "path"), [one for one in operations() if "{" in one[1] and one[1] != OF_VENDORS])
def test_any_question_about_something_that_is_there_is_answered(schema, left_out, method, path):
    program = Program(requests_per_minute=0)
    mine = everything(program, api_vendor())

    @FEW
    @given(case=schema[path][method].as_strategy())
    def ask(case):
        case.path_parameters = {name: mine.things[name] for name in case.path_parameters}
        case.call_and_validate(headers={"Authorization": f"Bearer {program.token}"}, excluded_checks=left_out)

    ask()
