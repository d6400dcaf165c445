"""The page for what went wrong: 503 if a client may come again, because a store is away or says "not now", or because a
process that makes letters has ended; else 500.
"""

import sys

from django.db import Error, connection
from django.http import HttpRequest, HttpResponse, HttpResponseServerError
from django.views import defaults

from campaigns.content.apart import ProcessLost
from vendors import outages
from vendors.not_now import refusal

AGAIN = 5  # seconds


def show(request: HttpRequest) -> HttpResponse:
    """Called by Django where it has caught the error."""
    error = sys.exception()
    page = defaults.server_error(request)
    if isinstance(page, HttpResponseServerError) and (said := refusal(error)):
        if isinstance(error, Error):
            outages.note("database", said)
            connection.close()  # a session that is read-only may stay so
        page.status_code, page.headers["Retry-After"] = 503, str(AGAIN)
    elif isinstance(error, ProcessLost):
        page.status_code, page.headers["Retry-After"] = 503, str(AGAIN)
    return page
