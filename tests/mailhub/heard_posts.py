"""Finds out whether a view reads what is posted to it: the last middleware, so that no other one is meant."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse, QueryDict
from django.test import Client, override_settings


class HeardRequest(WSGIRequest):
    """A request that remembers that its POST was read."""

    is_heard: bool

    @property
    def POST(self) -> QueryDict:  # type: ignore[override]
        self.is_heard = True
        return self._get_post()


class HeardMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: Any, *_view: Any) -> None:
        request.__class__ = HeardRequest
        request.is_heard = False


@contextmanager
def hear_posts(of: Client) -> Iterator[Client]:
    """A client with the session of this one, whose requests are HeardRequests."""
    with override_settings(MIDDLEWARE=[*settings.MIDDLEWARE, f"{__name__}.{HeardMiddleware.__name__}"]):
        client = Client()
        client.cookies = of.cookies
        yield client
