"""Live pages between two looks: polls that cost little, the time that they show, compression, and pages of errors."""

import gzip
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles import finders
from django.templatetags.static import static
from django.test import Client, RequestFactory
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.defaults import server_error
from django_celery_beat.models import IntervalSchedule

from campaigns.models import Job
from mailhub import static_files
from mailhub.owners import urls as owners
from tests import factories
from tests.campaigns.rows import in_doubt, logged

JOBS, PULSE = "/admin/campaigns/job/", "/admin/operations/pulse/"
POLL = {"HX-Request": "true"}


@pytest.fixture
def job(db: None) -> Job:
    vendor = factories.at_work(factories.vendor("amazingmail", limits=[(5, 60)]))
    return factories.campaign_with_job(100, of=factories.credential(vendor), status="STOPPED", messages=False)


class TestPolls:
    @pytest.mark.parametrize("path", [JOBS, PULSE])
    def test_where_nothing_has_changed_the_answer_is_empty(self, admin_client: Client, job: Job, path: str) -> None:
        first = admin_client.get(path, headers=POLL)
        known = POLL | {"If-None-Match": f"W/{first['ETag']}"}  # weak once it has been compressed
        again = admin_client.get(path, headers=known)
        assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
        assert again["X-As-Of"].endswith(" UTC")
        logged(3, [in_doubt()] * 3)
        changed = admin_client.get(path, headers=known)
        assert changed.status_code == 200 and changed["ETag"] != first["ETag"]

    def test_a_poll_of_the_list_is_its_rows_and_tabs_alone(self, admin_client: Client, job: Job) -> None:
        page, poll = admin_client.get(JOBS), admin_client.get(JOBS, headers=POLL)
        for shown in (page.content, poll.content):
            assert b'id="job-rows"' in shown and b'id="job-tabs"' in shown and b"amazingmail" in shown
        assert b"<html" not in poll.content and b"csrfmiddlewaretoken" not in poll.content
        assert b"hx-swap-oob" not in page.content
        assert len(poll.content) < len(page.content) / 3

    @pytest.mark.parametrize("path", [JOBS, "/admin/"])
    def test_a_live_page_tells_of_when_it_is_and_in_which_zone(self, admin_client: Client, job: Job, path: str) -> None:
        with timezone.override("Asia/Tokyo"):
            page = admin_client.get(path).content.decode()
            poll = admin_client.get(path, headers=POLL)
        assert " JST</time>" in page and "All times are in the zone Asia/Tokyo." in page
        assert poll["X-As-Of"].endswith(" JST")


class TestCompression:
    def test_pages_are_compressed_and_answers_of_the_api_are_not(self, admin_client: Client) -> None:
        page = admin_client.get("/admin/", headers={"Accept-Encoding": "gzip"})
        assert page["Content-Encoding"] == "gzip"
        assert b"</html>" in gzip.decompress(page.content)
        answer = admin_client.get("/api/v1/openapi.json", headers={"Accept-Encoding": "gzip"})
        assert len(answer.content) > 1000 and "Content-Encoding" not in answer

    def test_files_are_collected_once_under_names_of_their_content(self, settings: Any, tmp_path: Path) -> None:
        settings.STATIC_FOLDER = settings.STATIC_ROOT = tmp_path
        (tmp_path / "new-of-one-that-was-killed").mkdir()
        static_files.collect_static()
        folder = settings.STATIC_ROOT
        assert folder.parent == tmp_path
        settings.STATIC_ROOT = tmp_path
        static_files.collect_static()
        assert folder == settings.STATIC_ROOT
        (name,) = (one.name for one in (folder / "mailhub").glob("admin.*.css"))
        assert (folder / "mailhub" / f"{name}.gz").exists()
        storage = static_files.HashedStorage(location=folder)
        assert storage.url("mailhub/admin.css").endswith(f"/mailhub/{name}")

    def test_files_that_were_not_collected_have_their_plain_names(self) -> None:
        assert static("mailhub/admin.css") == "/static/mailhub/admin.css"


class TestWeight:
    """Cold, with an empty cache: at most so many requests and bytes, the page itself among them."""

    REQUESTS, BYTES = 12, 100_000

    def test_each_page_is_light(self, admin_client: Client, job: Job) -> None:
        logged(3, [in_doubt()] * 3)
        IntervalSchedule.objects.get_or_create(every=7, period="days")
        heavy, sizes = {}, dict[str, int]()
        for path in sorted({*_lists_and_forms(admin_client), *_owners(job), "/admin/login/", "/login/"}):
            client = Client() if path.endswith("login/") else admin_client
            answer = client.get(path, headers={"Accept-Encoding": "gzip"})
            if answer.status_code in (302, 403, 405):  # nobody adds it, there is one page, or no GET
                continue
            assert answer.status_code == 200, (path, answer.status_code)
            page = answer.content
            text = (gzip.decompress(page) if answer.headers.get("Content-Encoding") == "gzip" else page).decode()
            files = set(re.findall(r'<(?:script|link|img)\b[^>]*?(?:src|href)="(/[^"]+)"', text))
            for file in files - set(sizes):
                found = finders.find(file.removeprefix("/static/"))
                body = Path(str(found)).read_bytes() if found else admin_client.get(file).content
                sizes[file] = len(gzip.compress(body))
            requests, size = 1 + len(files), len(page) + sum(sizes[file] for file in files)
            print(f"{path:60} {requests:3} requests {size / 1000:6.1f} kB")
            if requests > self.REQUESTS or size > self.BYTES:
                heavy[path] = (requests, size, sorted(files))
        assert heavy == {}


def _lists_and_forms(client: Client) -> Iterator[str]:
    """Of everything in the admin, which its first page finds: its list, and the form of its newest or first row."""
    client.get("/admin/")
    yield from ("/admin/", "/admin/campaigns/message/attention/", f"{JOBS}{Job.objects.latest('pk').pk}/history/")
    for model in list(admin.site._registry):
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        row = model._default_manager.order_by("-pk").first()
        yield reverse(f"{name}_changelist")
        yield reverse(f"{name}_add") if row is None else reverse(f"{name}_change", args=[row.pk])


def _owners(job: Job) -> Iterator[str]:
    """The pages of campaign owners, those about a campaign with one."""
    for one in owners.urls():
        if one.name not in (
            "logout",
            "campaign-download",
            "campaign-decide",
            "approval",
            "approval-cost",
            "suppression-file",
        ):
            with suppress(NoReverseMatch):  # about a row that is not there
                needs = one.pattern.converters
                yield reverse(str(one.name), kwargs={"campaign_id": job.campaign_id} if "campaign_id" in needs else {})
    yield reverse("campaign-decide", args=[job.campaign_id, "stop"])


class TestErrors:
    def test_what_is_not_there_says_so_and_leads_home(self, client: Client, db: None) -> None:
        answer = client.get("/nothing/<b>")
        page = answer.content.decode()
        assert answer.status_code == 404
        assert "There is no such page" in page and "&lt;b&gt;" in page and 'href="/"' in page

    def test_what_is_forbidden_says_to_whom(self, client: Client, db: None) -> None:
        user = User.objects.create(username="vera", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_job"))
        client.force_login(user)
        answer = client.get("/admin/vendors/vendor/")
        page = answer.content.decode()
        assert answer.status_code == 403
        assert "You are logged in as vera" in page and 'href="/admin/"' in page

    def test_a_form_of_an_earlier_log_in_is_explained(self, db: None) -> None:
        answer = Client(enforce_csrf_checks=True).post("/login/", {"username": "ann"})
        assert answer.status_code == 403 and "Nothing was done" in answer.content.decode()

    def test_an_error_is_told_without_a_database(self) -> None:
        """This test has none: Django's client for tests would say so."""
        answer = server_error(RequestFactory().get("/"))
        assert answer.status_code == 500 and "This page could not be made" in answer.content.decode()
