"""Files are uploaded once, and requests to send refer to them by their id: of the key's sponsor only."""

import base64
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from campaigns.lists.intake import uploads
from campaigns.models import Campaign, CampaignFile, StoredFile, UploadedFile
from campaigns.tasks import delete_files
from tests import factories
from tests.front.program import Program, fresh, pointers, problem
from tests.front.test_message_content import news, relay
from tests.lock_waits import count_lock_waits
from tests.waiting import wait_until

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
FILES = "/api/v1/files"
PDF = b"%PDF of March"
ID = f"file_{sha256(PDF).hexdigest()}"


def upload(program: Program, content: bytes = PDF) -> Any:
    return program.client.post(FILES, content, content_type="application/octet-stream")


def delete(program: Program, file_id: str = ID) -> int:
    return program.client.delete(f"{FILES}/{file_id}").status_code


def older(days: int) -> None:
    past = timezone.now() - timedelta(days=days)
    for table in (UploadedFile, StoredFile):
        table.objects.update(asked_at=past)


def test_one_content_has_one_id_however_often_and_by_whomever_it_is_uploaded() -> None:
    ours, theirs = Program(), Program()
    first, again, other = upload(ours), upload(ours), upload(theirs)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 201)
    assert first.headers["Location"] == f"{FILES}/{ID}" and first.json()["id"] == ID == other.json()["id"]
    assert first.json()["size"] == len(PDF) == ours.get(f"{FILES}/{ID}").json()["size"]
    assert (StoredFile.objects.count(), UploadedFile.objects.count()) == (1, 2)
    assert problem(upload(ours, b""), "validation", 422) and problem(
        upload(ours, b"x" * 5_300_000), "payload-too-large", 413
    )


def test_attachments_and_recipients_own_files_may_be_uploaded_ones() -> None:
    program = Program()
    upload(program)
    given = {"name": "bob.pdf", "content": base64.b64encode(b"%PDF of Bob").decode()}
    body = news(
        relay(),
        attachments=[{"name": "terms.pdf", "file": ID}, {"name": "logo.png", "file": ID, "cid": "logo"}],
        files=[{"name": "ann.pdf", "file": ID}, given],
        file_fields=["invoice"],
    )
    answer = program.send(body)
    assert answer.status_code == 202, answer.content
    rows = CampaignFile.objects.values_list("name", "content_type", "cid", "to_all", "file__size")
    assert set(rows) == {
        ("terms.pdf", "application/pdf", "", True, len(PDF)),
        ("logo.png", "image/png", "logo", True, len(PDF)),
        ("ann.pdf", "application/pdf", "", False, len(PDF)),
        ("bob.pdf", "application/pdf", "", False, 11),
    }
    assert StoredFile.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_requests_at_once_that_refer_to_an_idle_file_all_find_it() -> None:
    sponsor = factories.sponsor()
    of = uploads.Owner(sponsor.pk, test=False)
    digest = uploads.store_upload(of, PDF)[0].digest
    UploadedFile.objects.update(asked_at=timezone.now() - timedelta(hours=2))

    def second() -> bool:
        try:
            return digest in uploads.find_uploads(of, [digest])
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            assert digest in uploads.find_uploads(of, [digest])
            answer = threads.submit(second)
            wait_until(count_lock_waits, "the second request waits for the first")
        assert answer.result() is True


def test_whoever_has_not_uploaded_it_has_no_such_file_whatever_its_digest() -> None:
    ours, theirs = Program(), Program()
    upload(theirs)
    body = news(relay(), attachments=[{"name": "logo.png", "file": ID, "cid": "logo"}])
    assert pointers(ours.send(body)) == {"/attachments/0/file": "file"}
    problem(ours.get(f"{FILES}/{ID}"), "not-found", 404)
    assert (delete(ours), delete(ours, "file_x"), delete(theirs), delete(theirs)) == (404, 404, 204, 404)
    assert pointers(theirs.send(body)) == {"/attachments/0/file": "file"} and not Campaign.objects.exists()
    for wrong in ({"content": "YQ==", "file": ID}, {}):
        assert pointers(ours.send(news(relay(), attachments=[{"name": "logo.png", "cid": "logo", **wrong}]))) == {
            "/attachments/0": "file"
        }


def test_what_nobody_refers_to_goes_after_thirty_days_and_what_a_campaign_carries_stays() -> None:
    program = Program()
    upload(program)
    upload(program, b"never used")
    older(days=29)
    body = news(relay(), attachments=[{"name": "logo.png", "file": ID, "cid": "logo"}])
    assert program.send(body).status_code == 202
    delete_files()
    assert UploadedFile.objects.count() == 2
    UploadedFile.objects.exclude(file=sha256(PDF).digest()).update(asked_at=timezone.now() - timedelta(days=31))
    delete_files()
    assert [bytes(one.file_id) for one in UploadedFile.objects.all()] == [sha256(PDF).digest()]
    assert StoredFile.objects.count() == 1
    assert delete(program) == 204
    older(days=2)
    delete_files()
    assert StoredFile.objects.count() == 1, "a campaign carries it"


def test_a_deleted_file_stays_a_day_for_requests_that_were_just_checked() -> None:
    program = Program()
    upload(program)
    older(days=2)
    assert delete(program) == 204
    delete_files()
    assert StoredFile.objects.count() == 1
    older(days=2)
    delete_files()
    assert not StoredFile.objects.exists()


@pytest.mark.parametrize("bound", ["MOST_FILES", "MOST_BYTES"])
def test_a_sponsor_has_so_many_and_a_repeat_of_one_that_is_there_is_none_more(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program()
    assert upload(program).status_code == 201
    monkeypatch.setattr(uploads, bound, 1)
    answer = problem(upload(program, b"one more"), "state-conflict", 409)
    assert "delete some" in answer["detail"] and StoredFile.objects.count() == 1
    assert upload(program).status_code == 200 and upload(Program(), b"").status_code == 422
