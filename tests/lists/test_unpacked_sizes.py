"""How much a spreadsheet may unpack to depends on the door: less on a page than for who reads a file of their own."""

import io
import time

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from campaigns.lists.intake.sheets import MOST_UNPACKED
from campaigns.lists.intake.suppression_file import SuppressionFile
from campaigns.models import Suppression
from campaigns.suppression.admin import suppression_import
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.lists.test_intake_xlsx import LIST, SHEET, book, changed

pytestmark = pytest.mark.django_db
PAGE = "/admin/campaigns/suppression/import/"
ROWS = [["address"], *([f"r{number}@sandbox.example"] for number in range(1000))]


def bomb(size: int) -> bytes:
    return changed(book(LIST), SHEET, "</sheetData>", "</sheetData>" + " " * size)


def test_a_page_unpacks_no_more_of_a_small_file_than_its_own_limit(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert suppression_import.UNPACKED == MOST_UNPACKED // 20
    packed = bomb(suppression_import.UNPACKED)
    assert len(packed) < 200_000
    given = {"sponsor": factories.sponsor().pk, "channel": "email", "reason": "bounced"}
    began = time.process_time()
    answer = admin_client.post(PAGE, {**given, "file": SimpleUploadedFile("a.xlsx", packed)})
    assert "the spreadsheet unpacks to more than 100,000,000 bytes: save it as CSV" in answer.content.decode()
    assert time.process_time() - began < 60 and not Suppression.objects.exists()
    monkeypatch.setattr(suppression_import, "UNPACKED", 20_000)
    answer = admin_client.post(PAGE, {**given, "file": SimpleUploadedFile("a.xlsx", book(ROWS))})
    assert "unpacks to more than 20,000 bytes" in answer.content.decode() and not Suppression.objects.exists()


def test_cells_that_share_a_long_text_write_no_more_than_the_limit_either() -> None:
    file = io.BytesIO(book([["address", "source"], *([f"r{n}@sandbox.example", "x" * 30_000] for n in range(400))]))
    with pytest.raises(ValueError, match="has more than 1,000,000 bytes of cells"):
        SuppressionFile(file, "email", NewSuppression("", "bounced"), {}, most_unpacked=1_000_000)


def test_a_list_within_the_limit_is_taken(admin_client: Client) -> None:
    given = {"sponsor": factories.sponsor().pk, "channel": "email", "reason": "bounced"}
    admin_client.post(PAGE, {**given, "file": SimpleUploadedFile("a.xlsx", book(ROWS))})
    assert Suppression.objects.count() == 1000
