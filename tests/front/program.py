"""A client program for tests: it has a key, sends letters and asks what became of them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from campaigns.doors.front import keys
from campaigns.doors.front.keys import keyring
from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.integrations.api.receipts import counts, known_vendors
from campaigns.lists.intake.requests import connection_pool
from campaigns.models import Sponsor
from campaigns.reporting.api.forecasts import forecasts
from tests import factories

ALL = ("send", "read", "ops")
PROBLEM = "application/problem+json"


def forget() -> None:
    """What this process has read of keys and vendors: a test's rows come and go faster than a second."""
    keyring.forget_callers()
    vendor_cache.forget_vendors()
    known_vendors.forget_all()
    counts.forget_counts()
    forecasts.forget_queues()
    connection_pool.close()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


def api_vendor(**fields: Any) -> Any:
    """A vendor that the API can use: with one credential."""
    vendor = factories.vendor(**{"settings": {"url": "http://127.0.0.1:9/letters"}, **fields})
    factories.credential(vendor, "default")
    vendor_cache.forget_vendors()
    return vendor


def letter(vendor: Any = None, to: Any = "ann@sandbox.example", **members: Any) -> dict[str, Any]:
    """A request's body; to: an address, or several."""
    recipients = [{"to": one} for one in ([to] if isinstance(to, str) else to)]
    body = {"subject": "Hello", "body": "Good day", "recipients": recipients, **members}
    return body if vendor is None else {"vendor": vendor.slug, **body}


class Program:
    def __init__(
        self, sponsor: Sponsor | None = None, kind: str = "live", scopes: tuple[str, ...] = ALL, **more: Any
    ) -> None:
        self.sponsor = sponsor or factories.sponsor()
        self.key, self.token = keys.create_key(self.sponsor, kind, scopes, **more)
        self.client = Client(headers={"Authorization": f"Bearer {self.token}"})

    def send(self, body: Any, key: str | None = "", path: str = "/api/v1/messages") -> Any:
        """key: '' makes one of its own, None sends none."""
        name = factories.unique("key") if key == "" else key
        headers = {} if name is None else {"Idempotency-Key": name}
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        return self.client.post(path, text, content_type="application/json", headers=headers)

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path if path.startswith("/api") else f"/api/v1/{path}", headers=headers)

    def post(self, path: str) -> Any:
        return self.client.post(path if path.startswith("/api") else f"/api/v1/{path}")


def problem(response: Any, kind: str, status: int) -> dict[str, Any]:
    """The problem that the response is."""
    assert (response.status_code, response.headers["Content-Type"]) == (status, PROBLEM), response.content
    found = response.json()
    assert found["type"] == f"urn:mailhub:problem:{kind}" and found["status"] == status and found["title"]
    return found


def pointers(response: Any) -> dict[str, str]:
    """Pointer -> code of a validation problem."""
    return {one["pointer"]: one["code"] for one in problem(response, "validation", 422)["errors"]}
