"""The page for errors: 503 if a retry may help, else 500.

A retry may help if a store is unavailable or says "not now", or if a process that makes letters has ended.
"""

import sys

from django.db import Error, connection
from django.http import HttpRequest, HttpResponse, HttpResponseServerError
from django.views import defaults

from campaigns.texts.apart import ProcessLost
from vendors import outages
from vendors.not_now import find_refusal_text

AGAIN = 5  # seconds


def show_failed_page(request: HttpRequest) -> HttpResponse:
    """Show the page. Django calls it where it has caught the error."""
    error = sys.exception()
    page = defaults.server_error(request)
    if isinstance(page, HttpResponseServerError) and (said := find_refusal_text(error)):
        if isinstance(error, Error):
            outages.note_outage("database", said)
            connection.close()  # a read-only session may stay read-only
        page.status_code, page.headers["Retry-After"] = 503, str(AGAIN)
    elif isinstance(error, ProcessLost):
        page.status_code, page.headers["Retry-After"] = 503, str(AGAIN)
    return page
