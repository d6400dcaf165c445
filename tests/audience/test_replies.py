"""Recipients answer mails: who surely asks to stop is unsubscribed, everything else is read by a person."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from campaigns.audience import unread_answers
from campaigns.audience.bounces import inbound
from campaigns.audience.bounces.inbound import InboundMail
from campaigns.audience.bounces.replies import read_reply
from campaigns.content import return_paths
from campaigns.content.return_paths import ReturnPaths
from campaigns.models import Campaign, Identity, Message, MessageEvent, RecipientAnswer, Suppression
from tests.audience.forms import feedback, written
from tests.audience.test_inbound import MAILBOX, address, counts, sent
from tests.campaigns.rows import messages
from vendors.history import Actor

pytestmark = pytest.mark.django_db


SOMEBODY = "someone@else.example"


def mail(
    text: str,
    subject: str = "Re: News",
    more: str = "",
    kind: str = "text/plain; charset=utf-8",
    sender: str = SOMEBODY,
) -> bytes:
    head = f"From: Ann <{sender}>\nTo: Velma <hello@velma.example>\nSubject: {subject}\n{more}"
    return f"{head}Message-ID: <1@else.example>\nContent-Type: {kind}\n\n{text}".replace("\n", "\r\n").encode()


def answer(row: Message, text: str, to: str = "", null_sender: bool = False, **more: str) -> str:
    """The result for its recipient's mail that names the message by In-Reply-To, or by its envelope's recipient."""
    head = "" if to else f"In-Reply-To: <{row.reference}@velma.example>\n"
    more = {"sender": row.recipient} | more
    content = mail(text, more=head + more.pop("more", ""), **more)
    return inbound.store_mail(InboundMail(content, (to or MAILBOX,), null_sender, timezone.now()), "mailbox").what


def suppressed() -> set[tuple[str, str, int | None]]:
    return set(Suppression.objects.values_list("address", "reason", "topic"))


@pytest.mark.parametrize(
    "text",
    [
        "Please remove me from this list.\n\n-- \nAnn\n\nOn Mon, 4 May 2026, Velma wrote:\n> News",
        "STOP\nSent from my iPhone\n",
        "Bitte abmelden, danke\n\nAm 04.05.2026 um 10:00 schrieb Velma:\n> Hallo",
    ],
)
def test_a_reply_that_surely_asks_unsubscribes_its_recipient_from_everything(text: str) -> None:
    (row,) = messages(sent())
    assert answer(row, text) == "unsubscribed" and answer(row, text) == "unsubscribed"
    assert suppressed() == {(row.recipient, "unsubscribed", None)}
    assert Suppression.objects.get().source == f"reply, campaign {row.campaign_id}"
    assert not RecipientAnswer.objects.exists() and counts() == {"unsubscribed": 2}


def test_another_reply_is_read_by_a_person_and_a_repeat_is_the_same() -> None:
    (row,) = messages(sent())
    assert [answer(row, "Why do I get this? Please stop it.") for _ in range(2)] == ["answer"] * 2
    found = RecipientAnswer.objects.get()
    assert (found.kind, found.near, found.sender, found.message) == ("reply", True, row.recipient, row.pk)
    assert found.campaign == row.campaign_id and found.sponsor_id == row.campaign.sponsor_id
    assert answer(row, "Thanks, see you!", more="Message-ID: <2@else.example>\n") == "answer"
    assert suppressed() == set() and RecipientAnswer.objects.count() == 2


def test_a_reply_to_the_return_path_names_its_message() -> None:
    (row,) = messages(sent())
    assert answer(row, "unsubscribe", to=address(row)) == "unsubscribed"


@pytest.mark.parametrize(
    "text",
    [
        "<head><title>News</title></head><BODY><p>Please <b>un</b>subscribe\nme<o:p></o:p></p><hr>From: Velma</BODY>",
        "<style><!-- p > b {} --></style><p title='\"a\"'>Unsubscribe&nbsp;me<br/><br><pre>-- \nAnn</pre>",
        "<!DOCTYPE html><!-- <blockquote> --><p>Unsubscribe<script>if (a<b) {'</blockquote>'}</script>",
    ],
)
def test_html_is_read_as_its_writer_sees_it(text: str) -> None:
    (row,) = messages(sent())
    assert answer(row, text, kind="text/html") == "unsubscribed"


def test_a_text_in_a_wrong_charset_is_read_as_utf8_or_western() -> None:
    form = "From: ann@example.org\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\nd\u00e9sinscrire"
    for encoding in ("utf-8", "cp1252"):
        assert read_reply(form.encode(encoding)).text == "d\u00e9sinscrire"


def test_html_alone_is_read_without_what_it_quotes() -> None:
    (row,) = messages(sent())
    text = "<html><body><div>Please unsubscribe me</div><blockquote>Dear Ann, <b>news</b></blockquote></body></html>"
    assert answer(row, text, kind="text/html") == "unsubscribed"


THANKS_AND_QUOTES = [
    "<div>Thank you!</div><blockquote type=cite>News<blockquote>What a joy</blockquote><a href=x>Unsubscribe</a>"
    "</blockquote>",
    "Thank you!<blockquote>News</blockquote></blockquote><p>Unsubscribe",
    "<blockquote>News</blockquote>Unsubscribe",
    "<style>p {}</style>Unsubscribe</blockquote><p>Thank you!",
    "<div>Thanks!</div><BLOCKQUOTE a='>'/><pre>News\nUnsubscribe</pre>",
    "Unsubscribe<v@velma.example",
    "<img alt='> '>Unsubscribe",
]


@pytest.mark.parametrize("text", THANKS_AND_QUOTES)
def test_what_html_quotes_unsubscribes_nobody_however_it_is_nested(text: str) -> None:
    (row,) = messages(sent())
    assert answer(row, text, kind="text/html") == "answer" and suppressed() == set()


def test_text_beside_a_badly_wrapped_quote_is_read_by_a_person() -> None:
    (row,) = messages(sent())
    text = (
        "Thanks!\n\nOn Mon, 4 May 2026, Velma wrote:\n> If you want no more, click here to\nunsubscribe\n> Velma Ltd\n"
    )
    assert answer(row, text) == "answer" and suppressed() == set()
    assert RecipientAnswer.objects.get().near


def alternatives(first: str, second: str) -> dict[str, str]:
    text = f"--b\nContent-Type: text/plain\n\n{first}\n--b\nContent-Type: text/html\n\n{second}\n--b--\n"
    return {"text": text, "kind": 'multipart/alternative; boundary="b"', "subject": "Re:"}


@pytest.mark.parametrize("blank", ["", " \n", "\u200b\u00a0"])
def test_html_is_read_where_the_plain_text_is_blank(blank: str) -> None:
    (row,) = messages(sent())
    assert answer(row, **alternatives(blank, "<p>Please stop sending me emails</p>")) == "unsubscribed"
    assert suppressed() == {(row.recipient, "unsubscribed", None)}


def test_a_reply_without_readable_text_waits_to_be_read_with_a_note(client: Client) -> None:
    (row,) = messages(sent())
    assert answer(row, **alternatives("", "<img src=stop.png>")) == "answer"
    assert RecipientAnswer.objects.get().text == "No text could be read in this mail."
    client.force_login(User.objects.create_superuser("root"))
    for path in ("/answers/", "/admin/campaigns/recipientanswer/"):
        assert "No text could be read in this mail." in client.get(path).content.decode()


def test_somebody_elses_stop_is_read_by_a_person_who_sees_its_writer() -> None:
    (row,) = messages(sent())
    assert answer(row, "STOP", sender=SOMEBODY) == "answer" and suppressed() == set()
    found = RecipientAnswer.objects.get()
    assert (found.near, found.sender, found.text) == (True, row.recipient, f"From: {SOMEBODY}\n\nSTOP")
    unread_answers.treat_as_stop(found.pk, Actor("ann"))
    assert suppressed() == {(row.recipient, "unsubscribed", None)}


def test_a_sender_is_the_recipient_in_any_case() -> None:
    (row,) = messages(sent())
    assert answer(row, "STOP", sender=row.recipient.replace("person", "Person").replace("example", "EXAMPLE")) == (
        "unsubscribed"
    )


def test_a_subject_counts_where_it_is_not_ours() -> None:
    (row,) = messages(sent())
    assert answer(row, "", subject="unsubscribe") == "unsubscribed"
    other = messages(sent())[0]
    assert answer(other, "> quoted", subject="Re: Stop") == "answer", "the subject may be ours"
    assert suppressed() == {(row.recipient, "unsubscribed", None)}


def test_a_transactional_mail_has_no_stop_but_a_reader() -> None:
    (row,) = messages(sent())
    Campaign.objects.filter(pk=row.campaign_id).update(transactional=True)
    assert answer(row, "stop") == "answer"
    assert suppressed() == set() and RecipientAnswer.objects.get().near


@pytest.mark.parametrize(
    ("more", "null_sender"),
    [({"more": "Auto-Submitted: auto-replied\n"}, False), ({"subject": "Out of office"}, False), ({}, True)],
)
def test_a_machine_is_no_writer(more: dict[str, str], null_sender: bool) -> None:
    (row,) = messages(sent())
    answer(row, "I am away. Please stop worrying.", null_sender=null_sender, **more)
    assert suppressed() == set() and not RecipientAnswer.objects.exists()


def test_who_names_no_message_of_ours_changes_nothing() -> None:
    (row,) = messages(sent())
    forged = f"In-Reply-To: <{row.reference[:-3]}{'0' if row.reference[-3] != '0' else '1'}-0@velma.example>\n"
    content = mail("stop", more=forged)
    assert inbound.store_mail(InboundMail(content, (MAILBOX,), False, timezone.now()), "mailbox").what == "not_a_report"
    assert suppressed() == set() and not RecipientAnswer.objects.exists()


def test_an_unreadable_mail_is_read_anyway() -> None:
    for raw in (
        b"",
        b"\xff" * 1000,
        b"Subject: =?x?b?\xff?=\r\nContent-Type: text/plain; charset=nonsense\r\n\r\nstop",
        *(b"Content-Type: text/html\r\n\r\n" + one * 20_000 for one in (b"<![", b"<a ", b"<a b='", b"<!--")),
    ):
        assert len(read_reply(raw).digest) == 32


class TestFeedback:
    def back(self, row: Message, kind: str) -> str:
        content = written(feedback(kind), address(row))
        return inbound.store_mail(InboundMail(content, (MAILBOX,), False, datetime.now(UTC)), "receiver").what

    @pytest.mark.parametrize("kind", ["opt-out", "opt-out-list"])
    def test_an_opt_out_unsubscribes(self, kind: str) -> None:
        (row,) = messages(sent())
        assert self.back(row, kind) == "unsubscribed" and self.back(row, kind) == "repeated"
        assert suppressed() == {(row.recipient, "unsubscribed", None)}
        assert MessageEvent.objects.get().kind == "unsubscribed"

    def test_a_report_of_fraud_is_a_complaint_that_a_person_reads(self) -> None:
        (row,) = messages(sent())
        assert self.back(row, "fraud") == "complaint" and self.back(row, "fraud") == "repeated"
        assert suppressed() == {(row.recipient, "complained", None)}
        found = RecipientAnswer.objects.get()
        assert (found.kind, found.near, found.message) == ("fraud", True, row.pk)

    @pytest.mark.parametrize("kind", ["virus", "other", "not-spam"])
    def test_other_types_are_no_wish(self, kind: str) -> None:
        (row,) = messages(sent())
        assert self.back(row, kind) == "other_report"
        assert suppressed() == set() and not RecipientAnswer.objects.exists()


def test_a_mail_to_unsubscribe_is_as_before() -> None:
    (row,) = messages(sent())
    to: Any = ReturnPaths(MAILBOX, return_paths.return_path_keys()).of(row.reference, "unsubscribe")
    assert answer(row, "whatever", to=to) == "unsubscribed"


class TestReplyTo:
    """Mails to the Reply-To of an identity that name no message of ours, as those of another mail program."""

    @pytest.fixture
    def identity(self) -> Identity:
        (row,) = messages(sent())
        facts = {"from_address": "news@velma.example", "reply_to": "Velma <Hello@velma.example>", "verp": True}
        return Identity.objects.create(sponsor=row.campaign.sponsor, name="spring", **facts)

    def come(self, text: str, to: str = "hello@velma.example") -> str:
        return inbound.store_mail(InboundMail(mail(text), (to,), False, timezone.now()), "receiver").what

    def test_a_person_decides_as_its_from_may_be_forged(self, identity: Identity) -> None:
        assert [self.come("remove me") for _ in range(2)] == ["answer"] * 2
        row = RecipientAnswer.objects.get()
        assert (row.near, row.sender, row.sponsor_id) == (True, "someone@else.example", identity.sponsor_id)
        assert suppressed() == set()
        unread_answers.treat_as_stop(row.pk, Actor("ann"))
        assert suppressed() == {("someone@else.example", "unsubscribed", None)}

    def test_the_receiver_takes_it_and_a_mail_to_another_address_is_none(self, identity: Identity) -> None:
        boxes = inbound.Mailboxes()
        assert boxes.wants_address("Hello@Velma.example") and not boxes.wants_address("other@velma.example")
        assert self.come("remove me", "other@velma.example") == "not_a_report"
        assert not RecipientAnswer.objects.exists()

    def test_texts_of_an_identity_are_cleaned_at_its_door(self, identity: Identity) -> None:
        identity.from_name, identity.reply_to = "\u200bVe\u0301lma\u00a0", " hello@velma.example\u2003"
        identity.full_clean()
        pool = Identity(sponsor=identity.sponsor, name="pool", channel="sms", numbers=["+447700900123"])
        pool.stop_texts = ["\ufeffSchluss "]
        pool.full_clean()
        assert (identity.from_name, identity.reply_to) == ("V\u00e9lma", "hello@velma.example")
        assert pool.stop_texts == ["Schluss"]
