"""What letters have beside subject and body, from the command to the relay that gets them."""

import asyncio
import base64
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from campaigns.content.attachments import AttachmentCache, LetterFiles
from campaigns.engine import sending
from campaigns.engine.connections import SharedRows
from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import move
from campaigns.models import Campaign, CampaignFile, Identity, Job, Message, StoredFile
from tests import factories
from tests.campaigns.test_rounds_of_mails import relay as serving
from tests.receivers.relays import serve_relay
from vendors.adapters.base import Letter
from vendors.models import Credential
from vendors.testing.http_server import MisbehavingHttp

pytestmark = pytest.mark.django_db(transaction=True)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
HTML = '<p>Dear {{ name }},</p><img src="cid:logo.png" alt="Us"><a href="https://example.org/{{ name }}">Read</a>'
LIST = "email,name,invoice\nann@example.org,Ann,ann.pdf\nbob@example.org,<Bob>,2026/bob.pdf\ncho@example.org,Cho,\n"


class Relay:
    """Takes all mails, and keeps them by recipient."""

    def __init__(self) -> None:
        self.mails: dict[str, EmailMessage] = {}

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=default)
        assert isinstance(mail, EmailMessage) and not mail.defects
        self.mails[envelope.rcpt_tos[0]] = mail
        return "250 taken"


@pytest.fixture
def relay() -> Iterator[tuple[Relay, int]]:
    made = Relay()
    with serve_relay(made) as port:
        yield made, port


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "list.csv").write_text(LIST, encoding="utf-8")
    (tmp_path / "news.html").write_text(HTML, encoding="utf-8")
    (tmp_path / "terms.pdf").write_bytes(b"%PDF terms")
    (tmp_path / "logo.png").write_bytes(PNG)
    own = tmp_path / "own"
    (own / "2026").mkdir(parents=True)
    (own / "ann.pdf").write_bytes(b"%PDF of Ann" * 100_000)
    (own / "2026" / "bob.pdf").write_bytes(b"%PDF of Bob")
    (tmp_path / "secret.pdf").write_bytes(b"not to be sent")
    (own / "out.pdf").symlink_to(tmp_path / "secret.pdf")
    return tmp_path


def vendor(port: int = 1, **fields: Any) -> Any:
    known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 2}
    made = factories.vendor("relay", adapter="smtp", settings=known, channel="email", **fields)
    factories.credential(made, "default")
    return made


def send(folder: Path, *more: str) -> Job:
    out = io.StringIO()
    basics = ["--sponsor", "Velma", "--vendor", "relay", "--subject", "News for {{ name }}", "--at", "now", "--json"]
    given = [str(folder / "list.csv"), "--body", str(folder / "news.html"), "--html", *basics, *more]
    call_command("send_campaign", *given, stdout=out)
    return Job.objects.get(pk=json.loads(out.getvalue())["job"])


def with_files(folder: Path, own: str = "own") -> list[str]:
    image, terms = str(folder / "logo.png"), str(folder / "terms.pdf")
    return ["--image", image, "--attach", terms, "--files", str(folder / own), "--file-column", "invoice"]


def deliver(job: Job) -> None:
    move(Job.objects.filter(pk=job.pk), "enqueue", fence=1, heartbeat_at=timezone.now())
    assert not sending.send_claimed_job(job.pk, 1).left


def names(mail: EmailMessage) -> list[str | None]:
    return [part.get_filename() for part in mail.iter_attachments()]


def body(mail: EmailMessage, kind: str) -> str:
    part = mail.get_body([kind])
    assert part is not None
    return str(part.get_content()).replace("\r\n", "\n")


def zipped(folder: Path) -> str:
    with zipfile.ZipFile(folder / "own.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "own" / "ann.pdf", "ann.pdf")
        archive.write(folder / "own" / "2026" / "bob.pdf", "2026/bob.pdf")
    return "own.zip"


@pytest.mark.parametrize("archive", [False, True])
def test_each_recipient_gets_text_html_image_headers_and_the_files_of_all_and_of_its_own(
    folder: Path, relay: tuple[Relay, int], archive: bool
) -> None:
    taken, port = relay
    vendor(port)
    own = zipped(folder) if archive else "own"
    deliver(send(folder, *with_files(folder, own), "--header", "Precedence: bulk", "--header", "X-Campaign:Frühling"))
    ann, bob, cho = (taken.mails[f"{name}@example.org"] for name in ("ann", "bob", "cho"))
    assert body(bob, "html").startswith("<p>Dear &lt;Bob&gt;,</p>")
    assert body(bob, "plain") == "Dear <Bob>,\n\n[Us][Read](https://example.org/<Bob>)\n"
    assert (names(ann), names(bob), names(cho)) == (["terms.pdf", "ann.pdf"], ["terms.pdf", "bob.pdf"], ["terms.pdf"])
    assert list(ann.iter_attachments())[1].get_content() == b"%PDF of Ann" * 100_000
    assert [mail["Precedence"] for mail in (ann, bob, cho)] == ["bulk"] * 3
    assert ann["X-Campaign"] == "Frühling"
    images = [part for part in ann.walk() if part.get_content_type() == "image/png"]
    assert [(part["Content-ID"], part.get_payload(decode=True)) for part in images] == [("<logo.png>", PNG)]


def test_a_headers_value_shows_fields_and_one_that_is_empty_is_left_out(folder: Path, relay: tuple[Relay, int]) -> None:
    taken, port = relay
    vendor(port)
    order = "X-Order: {% if name == 'Ann' %}{{ name }} <{{ recipient }}>{% endif %}"
    deliver(
        send(
            folder,
            *with_files(folder),
            "--header",
            "X-Name: for {{ name|upper }}",
            "--header",
            order,
            "--header",
            "X-A: 1",
        )
    )
    ann, bob = (taken.mails[f"{name}@example.org"] for name in ("ann", "bob"))
    assert (ann["X-Name"], ann["X-Order"], ann["X-A"]) == ("for ANN", "Ann <ann@example.org>", "1")
    assert (bob["X-Name"], bob["X-Order"], bob["X-A"]) == ("for <BOB>", None, "1")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("{{ nobody }}", "row 1: the template needs 'nobody'; the columns are"),
        ("{{ name", "the header X-A, line 1"),
        ("{{ name.__class__ }}", "the header X-A: the name '__class__' is not for templates"),
        ("{{ name|replace('B', '\\r\\nBcc: all@example.org') }}", "row 3: the header X-A"),
        ("{% for one in name %}" + "x" * 400 + "{% endfor %}", "the header X-A has more than 1,000 characters"),
    ],
)
def test_a_header_that_cannot_be_written_for_a_row_is_told_with_it_and_stores_nothing(
    folder: Path, value: str, sentence: str
) -> None:
    vendor()
    assert sentence in refused(folder, *with_files(folder), "--header", f"X-A: {value}")


def test_a_test_send_stores_no_file_of_the_rows_that_it_does_not_send(folder: Path) -> None:
    vendor()
    job = send(folder, *with_files(folder), "--test-to", "me@example.org")
    assert job.size == 1 and set(job.campaign.files.values_list("name", flat=True)) == {
        "logo.png",
        "terms.pdf",
        "ann.pdf",
    }
    assert StoredFile.objects.count() == 3


def test_a_file_is_stored_once_however_many_campaigns_and_recipients_have_it(folder: Path) -> None:
    vendor()
    (folder / "own" / "2026" / "bob.pdf").write_bytes((folder / "own" / "ann.pdf").read_bytes())
    for _ in range(2):
        send(folder, *with_files(folder))
    assert (StoredFile.objects.count(), CampaignFile.objects.count()) == (3, 8)


def test_a_text_of_ones_own_is_a_template_too_and_one_that_was_given_is_sent(
    folder: Path, relay: tuple[Relay, int]
) -> None:
    taken, port = relay
    vendor(port)
    (folder / "news.html").write_text("<p>Hello")
    (folder / "news.txt").write_text("Hello {{ name }}!\n", encoding="utf-8")
    deliver(send(folder, "--text", str(folder / "news.txt")))
    assert body(taken.mails["bob@example.org"], "plain") == "Hello <Bob>!\n"


def test_a_body_that_is_a_text_goes_alone_as_ever(folder: Path, relay: tuple[Relay, int]) -> None:
    taken, port = relay
    made = vendor(port)
    campaign = factories.campaign(["ann@example.org"], of=made.credentials.get(), body="Good day")
    deliver(factories.job(campaign, "DISPATCHED"))
    assert taken.mails["ann@example.org"].get_content_type() == "text/plain"


def refused(folder: Path, *more: str) -> str:
    with pytest.raises(CommandError) as error:
        send(folder, *more)
    assert not Campaign.objects.exists() and not CampaignFile.objects.exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("nowhere.pdf", "row 2: there is no file 'nowhere.pdf'"),
        ("../secret.pdf", "row 2: '../secret.pdf' does not name a file within the folder"),
        ("out.pdf", "row 2: 'out.pdf' is outside the folder"),
        ("/etc/passwd", "row 2: '/etc/passwd' does not name a file within the folder"),
        ("2026", "row 2: there is no file '2026'"),
        ("C:x.pdf", "row 2: 'C:x.pdf' does not name a file within the folder"),
        ("terms.pdf", "row 2: 'terms.pdf' is the name of a file that all get"),
        ("large.pdf", "row 2: 'large.pdf' has 20,000,001 bytes; 20,000,000 are the most"),
        ("half.pdf", "row 2: its files have 20,000,218 bytes together; 20,000,000 are the most"),
    ],
)
def test_what_cannot_be_a_recipients_file_is_told_with_its_row(folder: Path, cell: str, said: str) -> None:
    vendor()
    for name, size in (("large.pdf", 20_000_001), ("half.pdf", 20_000_000)):
        with (folder / "own" / name).open("wb") as file:
            file.truncate(size)
    (folder / "list.csv").write_text(LIST.replace("ann.pdf", cell), encoding="utf-8")
    assert said in refused(folder, *with_files(folder))


def test_an_archive_gives_no_more_than_a_file_may_have(folder: Path) -> None:
    vendor()
    with zipfile.ZipFile(folder / "own.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ann.pdf", bytes(50_000_000))  # 50 kB in the archive
        archive.writestr("../2026/bob.pdf", b"elsewhere")
    text = refused(folder, *with_files(folder, "own.zip"))
    assert "row 2: 'ann.pdf' has 50,000,000 bytes" in text and "row 3: there is no file '2026/bob.pdf'" in text


def test_an_archive_that_lies_about_a_size_is_refused(folder: Path) -> None:
    vendor()
    own = folder / zipped(folder)
    small, large = (len(b"%PDF of Ann" * 100_000).to_bytes(4, "little"), (1_000).to_bytes(4, "little"))
    own.write_bytes(own.read_bytes().replace(small, large))
    assert "'ann.pdf' " in refused(folder, *with_files(folder, "own.zip"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--header", "From: me@example.org"], "the header From is mailhub's own"),
        (["--header", "List-Unsubscribe: <https://example.org>"], "the header List-Unsubscribe is mailhub's own"),
        (["--header", "X-A: 1\r\nBcc: all@example.org"], "the header X-A must be one line of text"),
        (["--header", "X-A: 1", "--header", "x-a: 2"], "the header x-a is there twice"),
        (["--header", "nothing"], "'nothing' is no header"),
        (["--image", "terms.pdf"], "the HTML shows no cid:terms.pdf"),
        ([], "the HTML shows cid:logo.png, and there is no such image"),
        (["--attach", "terms.pdf", "--attach", "terms.pdf"], "two files are called 'terms.pdf'"),
        (["--attach", "gone.pdf"], "cannot read"),
        (["--files", "own"], "--files and --file-column go together"),
        (["--files", "own", "--file-column", "bill"], "there is no column 'bill' for files"),
        (["--files", "own", "--file-column", "email"], "there is no column 'email' for files"),
        (["--files", "gone", "--file-column", "invoice"], "there is no folder or archive"),
        (["--files", "terms.pdf", "--file-column", "invoice"], "the archive cannot be read"),
        (["--text", "broken.txt"], "the text, line 1"),
    ],
)
def test_what_no_letter_can_have_is_told_and_nothing_is_stored(folder: Path, more: list[str], said: str) -> None:
    vendor()
    (folder / "broken.txt").write_text("{{ name")
    names = {"terms.pdf", "gone.pdf", "own", "gone", "broken.txt"}
    given = [str(folder / word) if word in names else word for word in more]
    if said != "the HTML shows cid:logo.png, and there is no such image":
        given = ["--image", str(folder / "logo.png"), *given]
    assert said in refused(folder, *given)


def test_a_vendor_that_cannot_carry_it_is_told_before_anything_is_stored(folder: Path) -> None:
    made = vendor()
    made.adapter, made.settings = "http", {"url": "http://127.0.0.1:1"}
    made.save()
    (folder / "news.html").write_text("<p>Hello")
    (folder / "news.txt").write_text("Hello")
    attach = ["--attach", str(folder / "terms.pdf")]
    assert "the vendor relay does not carry files" in refused(folder, *attach)
    assert "does not carry a text beside the HTML" in refused(folder, "--text", str(folder / "news.txt"))
    assert "does not carry further headers" in refused(folder, "--header", "X-A: 1")
    assert not send(folder).campaign.text  # none is made that could not be sent
    made.settings["carries"] = "text,attachments"
    made.save()
    assert send(folder, *attach).campaign.needed_parts == {"text", "attachments"}
    made.settings["carries"] = "text"
    made.save()
    job = Job.objects.latest("id")
    move(Job.objects.filter(pk=job.pk), "enqueue", fence=1, heartbeat_at=timezone.now())
    assert sending.send_claimed_job(job.pk, 1).left
    job.refresh_from_db()
    assert "relay carries no attachments any more" in job.waits_for


def test_images_are_told_before_anything_is_stored_where_a_service_shows_none(folder: Path) -> None:
    made = vendor()
    made.adapter, made.settings = "anymail", {"service": "brevo"}
    made.save()
    image = ["--image", str(folder / "logo.png")]
    assert "the vendor relay does not carry images within the HTML" in refused(folder, *image)
    made.settings["service"] = "resend"
    made.save()
    Identity.objects.create(
        sponsor=factories.sponsor("Velma"), name="main", from_address="us@example.org", default=True
    )
    assert send(folder, *image).campaign.needed_parts == {"text", "attachments", "images"}
    made.settings["service"] = "brevo"
    made.save()
    login = Credential.objects.get(vendor=made)
    login.secret = {"api_key": "k"}
    login.save()
    job = Job.objects.latest("id")
    move(Job.objects.filter(pk=job.pk), "enqueue", fence=1, heartbeat_at=timezone.now())
    assert sending.send_claimed_job(job.pk, 1).left
    job.refresh_from_db()
    assert "relay carries no images any more" in job.waits_for
    (folder / "news.html").write_text("<p>Hello")
    assert send(folder, "--attach", str(folder / "terms.pdf")).campaign.needed_parts == {"text", "attachments"}


def test_a_file_of_each_recipient_is_read_for_its_call_and_one_of_all_once(folder: Path) -> None:
    vendor()
    campaign = send(folder, *with_files(folder)).campaign

    async def enclose() -> list[Any]:
        rows = SharedRows(1)
        cache = AttachmentCache(rows)
        files = [LetterFiles(campaign, cache) for _ in range(2)]
        letters = [Letter("r", "ann@example.org", "", "", {"invoice": " ann.pdf "})] * 2
        both = await asyncio.gather(*(one.enclose(letters) for one in files))
        await rows.close(float("inf"))
        return [letter.attachments for answered in both for letter in answered]  # type: ignore[union-attr]

    found = asyncio.run(enclose())
    assert [[file.name for file in files] for files in found] == [["terms.pdf", "logo.png", "ann.pdf"]] * 4
    assert len({id(file) for files in found for file in files}) == 3


def test_a_repeat_for_a_doubt_is_word_for_word_the_letter_that_was_sent(folder: Path) -> None:
    books = MisbehavingHttp()
    with serving(books) as port:
        made = vendor()
        known = {"url": f"http://127.0.0.1:{port}/letters", "dedupe": True, "dedupe_ttl": 86_400}
        made.adapter, made.settings = "http", {**known, "carries": "text,headers,attachments"}
        made.save()
        job = send(folder, *with_files(folder), "--header", "X-A: 1")
        deliver(job)
        assert finalizer.finalise_job(job.pk)
        past = timezone.now() - timedelta(hours=1)
        lost = {"dequeued_at": past, "sent_at": past, "in_doubt_at": past, "settle_at": past}
        made.refresh_from_db()
        where = made.destination + job.credential.destination
        Message.objects.update(**lost, message_id=None, delivered_at=None, destination=where)
        Job.objects.filter(pk=job.pk).update(accepted=0, in_doubt=3)
        reconciler.reconcile_due_doubts()
    letters = [json.loads(content) for _, _, content in books.requests]
    assert len(letters) == 6 and sorted(map(json.dumps, letters[:3])) == sorted(map(json.dumps, letters[3:]))
    [ann, _] = (letter for letter in letters if letter["recipient"] == "ann@example.org")
    assert [file["name"] for file in ann["attachments"]] == ["terms.pdf", "logo.png", "ann.pdf"]
    assert base64.b64decode(ann["attachments"][1]["content"]) == PNG and ann["attachments"][1]["cid"] == "logo.png"
    assert (ann["headers"], ann["text"][:10]) == ([{"name": "X-A", "value": "1"}], "Dear Ann,\n")
    assert not Message.objects.filter(in_doubt_at__isnull=False).exists()


def test_the_admin_shows_texts_headers_and_files_and_no_names_of_recipients_files(
    folder: Path, admin_client: Client
) -> None:
    vendor()
    campaign = send(folder, *with_files(folder), "--header", "X-A: 1").campaign
    page = admin_client.get(f"/admin/campaigns/campaign/{campaign.pk}/change/").content.decode()
    assert "terms.pdf (10\xa0bytes), logo.png (208\xa0bytes), 2 of single recipients, by invoice" in page
    assert "X-A" in page and "Read](https://example.org/" in page and "ann.pdf" not in page


def test_a_letter_whose_file_is_gone_is_refused_and_the_others_go(folder: Path, relay: tuple[Relay, int]) -> None:
    taken, port = relay
    vendor(port)
    job = send(folder, *with_files(folder))
    CampaignFile.objects.filter(name="ann.pdf").delete()
    deliver(job)
    assert sorted(taken.mails) == ["bob@example.org", "cho@example.org"]
    assert Message.objects.get(recipient="ann@example.org").error_code == "unsendable"


def test_a_file_that_cannot_be_read_for_a_moment_holds_up_its_letter_and_loses_nothing(
    folder: Path, relay: tuple[Relay, int]
) -> None:
    taken, port = relay
    vendor(port)
    job = send(folder, *with_files(folder))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE campaigns_campaignfile RENAME TO elsewhere")
    try:
        back = threading.Timer(1.5, rename_back)
        back.start()
        deliver(job)
    finally:
        back.join()
    assert sorted(taken.mails) == ["ann@example.org", "bob@example.org", "cho@example.org"]
    assert names(taken.mails["ann@example.org"]) == ["terms.pdf", "ann.pdf"]


def rename_back() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE elsewhere RENAME TO campaigns_campaignfile")
    connection.close()


def test_a_column_with_blanks_names_files_as_well(folder: Path) -> None:
    vendor()
    (folder / "list.csv").write_text(LIST.replace("invoice", "Invoice no."), encoding="utf-8")
    own = with_files(folder)[:-1]
    assert send(folder, *own, "Invoice no.").campaign.files.filter(to_all=False).count() == 2
