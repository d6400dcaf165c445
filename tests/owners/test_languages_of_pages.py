"""No page has an English text left for who reads German: neither one that has a German one, nor one that has none."""

import re
from functools import cache
from html import unescape
from html.parser import HTMLParser

import pytest
from django.test import Client
from django.utils import translation

from campaigns.engine import audit
from campaigns.models import Job
from tests.browser import every_page
from tests.front.program import fresh
from tests.owners.test_languages import GERMAN

pytestmark = pytest.mark.slow("many")

__all__ = ["fresh"]
PARTS = {  # what pages load or poll
    *(
        "home-live",
        "home-days",
        "campaign-live",
        "approval-cost",
        "draft_progress",
        "campaigns_job_live",
        "campaigns_job_parts",
    ),
    *("operations-pulse", "operations-workers", "operations-audit", "operations-halt", "operations-vendor"),
    *("operations-forecast", "operations-shares"),
}
READ = ("title", "aria-label", "placeholder", "alt", "data-label")  # attributes that people read or hear
ENGLISH = re.compile(r"\b(the|of|is|are|and|with|for|not|from|has|have|this|that|were|to|by|it|its|only|at|can|may)\b")
# Texts by rows, programs or people, and texts that Django composed in English before the request of a page.
DATA = re.compile(
    r"""(?x) City\ Library | Hooli | read\ timeout | mailbox\ full | the\ vendor's\ list | has\ not\ been\ paid
    | library\ opens | We\ open | Copy\ of | -name-for-a-slug | ^all\ sponsors$ | ^English$
    | ^(sandbox|default|casters)$ | ^Whether\ the\ user\ will | ^If\ disabled
    """
)


class Texts(HTMLParser):
    """The texts of a page, without scripts, styles, typed values and code."""

    SILENT = ("script", "style", "code", "pre", "textarea")

    def __init__(self, page):
        super().__init__()
        self.found, self._silent = set(), 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self._silent += tag in self.SILENT
        given = dict(attrs)
        said = [given.get(name) for name in READ]
        if tag == "input" and given.get("type") in ("submit", "button"):
            said.append(given.get("value"))
        self.found |= {unescape(one).strip() for one in said if one}

    def handle_endtag(self, tag):
        self._silent -= tag in self.SILENT

    def handle_data(self, data):
        if not self._silent:
            self.found.add(" ".join(data.split()))


def english(page):
    """Texts that are English, though German ones are in the catalogue, or that have words of English alone."""
    with translation.override("de"):
        for text in Texts(page).found:
            bare = re.sub(r"^[›:,;.\s]+|[:;.…\s]+$| \| mailhub$", "", text)
            if (has_a_german_one(bare) or ENGLISH.search(text)) and not DATA.search(text):
                yield text


@cache
def has_a_german_one(text):
    """Return True if the catalogue has another text for it; pages share most of their texts."""
    return bool(re.search(r"[a-z]{3}", text)) and translation.gettext(text) != text


def parts(rows):
    """The addresses of PARTS, with the rows of the pages that have them."""
    ids = {"job_id": Job.objects.filter(status="P_ASSIGNING").latest("pk").pk}
    for route, one in every_page.patterns():
        if one.name in PARTS:
            named = {**rows.of(route), **ids}
            yield one.name, "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda found, named=named: str(named[found[1]]), route)


@pytest.mark.django_db
def test_no_page_has_an_english_text_left(fresh, admin_client):
    rows = every_page.rows(admin_client)
    audit.run_and_keep()
    found, seen = {}, set()

    def look(name, answer):
        seen.add((name, answer.status_code))
        for text in english(answer.text):
            found.setdefault(text, []).append(name)

    for name, path in (every_page.owners(rows) | every_page.operators(rows)).items():
        look(name, (Client() if name in every_page.LOGGED_OUT else admin_client).get(path, headers=GERMAN))
    for name, path in parts(rows):
        look(name, admin_client.get(path, headers=GERMAN | {"HX-Request": "true"}))
    for name, (path, fields) in every_page.pressed(rows).items():
        client = Client() if name in every_page.LOGGED_OUT else admin_client
        look(name, client.post(path, fields, headers=GERMAN))
    assert not {name for name, status in seen if status >= 400 and "mistake" not in name} - {"nothing", "admin-nothing"}
    assert {name for name, _ in seen} >= PARTS
    assert not found, "\n".join(f"{text!r}: {', '.join(names[:3])}" for text, names in found.items())
