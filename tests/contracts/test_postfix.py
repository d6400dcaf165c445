"""The SMTP adapter and a real Postfix: what arrives is what was meant, at the first try, over every way there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from functools import cache
from typing import Any

import pytest

from tests import private_postfix
from tests.contracts.test_smtp import opened, settings
from tests.private_postfix import PrivatePostfix
from tests.waiting import wait_until
from vendors.adapters.base import Attachment, Letter
from vendors.adapters.mime_parts import LINE_MAX
from vendors.outcomes import Accepted, NotSent, Refused
from vendors.testing.certificates import authority
from vendors.testing.subject import LOOPS, run

pytestmark = [
    pytest.mark.slow("programs"),
    pytest.mark.skipif(bool(private_postfix.why_not()), reason=private_postfix.why_not()),
    pytest.mark.parametrize("loop", LOOPS),
]
TLS_KINDS = ("none", "starttls", "implicit")


@pytest.fixture(scope="module")
def postfix() -> Iterator[PrivatePostfix]:
    relay = PrivatePostfix(authority())
    yield relay
    relay.end()


def settings_for(relay: PrivatePostfix, tls: str, **more: Any) -> dict[str, Any]:
    port = relay.implicit if tls == "implicit" else relay.plain
    return settings(port, tls=tls, ca_file=str(authority()), **more)


@cache
def text(size: int) -> str:
    """That goes as it is: lines of every length, some of them dots."""
    draw = random.Random(size)
    lines = []
    while size > 0:
        lines.append("." * draw.randrange(4) + "".join(draw.choices("abc .~=", k=draw.randrange(LINE_MAX - 10))))
        size -= len(lines[-1]) + 1
    return "\n".join(lines) + "\n"


def arrived(relay: PrivatePostfix, number: int) -> dict[str, bytes]:
    """So many mails that arrived, by reference."""
    found: dict[str, bytes] = {}

    def all_of_them() -> bool:
        found.update(relay.delivered())
        return len(found) == number

    wait_until(all_of_them, f"{number} mails are delivered", log=relay.log)
    return found


def delivered(relay: PrivatePostfix, number: int) -> dict[str, bytes]:
    """The bodies of so many mails that arrived, by reference."""
    return {reference: mail.partition(b"\n\n")[2] for reference, mail in arrived(relay, number).items()}


@pytest.mark.parametrize("size", [30_000, 70_000, 160_000, 5_000_000])
@pytest.mark.parametrize("tls", TLS_KINDS)
def test_a_mail_of_any_size_arrives_whole_at_the_first_try(
    loop: str, tls: str, size: int, postfix: PrivatePostfix
) -> None:
    body = text(size)

    async def story() -> None:
        async with opened(settings_for(postfix, tls)) as adapter:
            for number in range(2):  # over a new connection, and over a kept one
                [outcome] = await adapter.send([Letter(f"{tls}-{number}", "you@example.org", "Hello", body)])
                assert isinstance(outcome, Accepted), (outcome, postfix.log()[-2000:])

    run(loop, story)
    assert delivered(postfix, 2) == {f"{tls}-{number}": body.encode() for number in range(2)}


@pytest.mark.parametrize("tls", TLS_KINDS)
def test_long_and_short_mails_of_one_round_arrive_whole(loop: str, tls: str, postfix: PrivatePostfix) -> None:
    sizes = [100, 200_000, 100, 70_000, 66_000]
    letters = [Letter(f"round-{number}", "you@example.org", "Hello", text(size)) for number, size in enumerate(sizes)]

    async def story() -> None:
        async with opened(settings_for(postfix, tls, batch=len(sizes))) as adapter:
            outcomes = await adapter.send(letters)
            assert all(isinstance(outcome, Accepted) for outcome in outcomes), (outcomes, postfix.log()[-2000:])

    run(loop, story)
    assert delivered(postfix, len(sizes)) == {letter.reference: letter.body.encode() for letter in letters}


@pytest.mark.parametrize("tls", TLS_KINDS)
def test_files_that_mails_share_arrive_whole_with_each(loop: str, tls: str, postfix: PrivatePostfix) -> None:
    files = tuple(
        Attachment(f"{size}.bin", "application/octet-stream", random.Random(size).randbytes(size))
        for size in (10, 48_000, 70_000, 3_000_000)
    )
    news = Letter("", "you@example.org", "Hello", "<p>Hello</p>", html=True, text="Hello", attachments=files)
    letters = [news._replace(reference=f"{tls}-files-{number}") for number in range(3)]

    async def story() -> None:
        async with opened(settings_for(postfix, tls, batch=len(letters))) as adapter:
            outcomes = await adapter.send(letters)
            assert all(isinstance(outcome, Accepted) for outcome in outcomes), (outcomes, postfix.log()[-2000:])

    run(loop, story)
    for mail in arrived(postfix, len(letters)).values():
        found = message_from_bytes(mail, policy=default)
        assert isinstance(found, EmailMessage)
        assert [part.get_content() for part in found.iter_attachments()] == [one.content for one in files]


@pytest.mark.parametrize("tls", TLS_KINDS)
def test_an_address_with_other_letters_than_ascii_arrives(loop: str, tls: str, postfix: PrivatePostfix) -> None:
    async def story() -> None:
        async with opened(settings_for(postfix, tls)) as adapter:
            [outcome] = await adapter.send([Letter("utf8", "jörg@example.com", "Grüße", "Lieber Jörg\n")])
            assert isinstance(outcome, Accepted), (outcome, postfix.log()[-2000:])

    run(loop, story)
    assert list(delivered(postfix, 1)) == ["utf8"]


def test_a_relay_that_denies_us_pauses_and_refuses_nobody(loop: str, postfix: PrivatePostfix) -> None:
    async def story() -> None:
        async with opened(settings(postfix.foreign)) as adapter:
            [outcome] = await adapter.send([Letter("denied", "you@elsewhere.example", "Hello", "Dear you\n")])
            assert isinstance(outcome, NotSent) and outcome.pause and "Relay access denied" in outcome.reason
            [outcome] = await adapter.send([Letter("taken", "you@example.org", "Hello", "Dear you\n")])
            assert isinstance(outcome, Accepted)

    run(loop, story)
    assert list(delivered(postfix, 1)) == ["taken"]


def test_a_login_is_taken_behind_tls_and_a_wrong_one_pauses(loop: str, postfix: PrivatePostfix) -> None:
    known = settings(postfix.login, tls="starttls", ca_file=str(authority()))

    async def story() -> None:
        async with opened(known, {"user": "velma", "password": "wrong"}) as adapter:
            [outcome] = await adapter.send([Letter("wrong", "you@example.org", "Hello", "Dear you\n")])
            assert isinstance(outcome, NotSent) and outcome.pause and "535" in outcome.reason
        async with opened(known, {"user": "velma", "password": "s3cret"}) as adapter:
            [outcome] = await adapter.send([Letter("right", "you@example.org", "Hello", "Dear you\n")])
            assert isinstance(outcome, Accepted), (outcome, postfix.log()[-2000:])
        async with opened(known) as adapter:
            [outcome] = await adapter.send([Letter("without", "you@example.org", "Hello", "Dear you\n")])
            assert isinstance(outcome, NotSent) and outcome.pause, outcome

    run(loop, story)
    assert list(delivered(postfix, 1)) == ["right"] and postfix.logins.seen[-1] == "velma"


@pytest.mark.parametrize(("recipient", "code", "enhanced"), [("nobody", "550", "5.1.1"), ("closed", "550", "5.2.1")])
def test_a_mailbox_that_is_unknown_or_closed_refuses_its_message_alone(
    loop: str, recipient: str, code: str, enhanced: str, postfix: PrivatePostfix
) -> None:
    outcomes = of_three(loop, postfix, Letter("bad", f"{recipient}@example.org", "Hello", "Dear you\n"))
    assert outcomes == [Accepted, Refused(code, enhanced), Accepted]


def test_a_full_mailbox_puts_its_message_off_and_no_other(loop: str, postfix: PrivatePostfix) -> None:
    first, full, last = of_three(loop, postfix, Letter("full", "full@example.org", "Hello", "Dear you\n"))
    assert (first, last) == (Accepted, Accepted)
    assert isinstance(full, NotSent) and full.scope == "message" and not full.pause and "Mailbox full" in full.reason


@pytest.mark.parametrize(("recipient", "scope"), [("listed", "receiver"), ("forged", "credential")])
def test_a_refusal_that_is_about_us_refuses_nobody_and_pauses(
    loop: str, recipient: str, scope: str, postfix: PrivatePostfix
) -> None:
    """Words about a block list may be those of one receiving domain; a second one with the same pauses all."""
    _, ours, _ = of_three(loop, postfix, Letter("ours", f"{recipient}@example.org", "Hello", "Dear you\n"))
    assert isinstance(ours, NotSent) and ours.scope == scope and ours.pause


def test_a_quota_of_ours_that_is_used_up_waits_for_its_renewal(loop: str, postfix: PrivatePostfix) -> None:
    _, ours, _ = of_three(loop, postfix, Letter("ours", "quota@example.org", "Hello", "Dear you\n"))
    assert isinstance(ours, NotSent) and ours.scope == "credential" and not ours.pause and ours.retry_after == 3600


def test_a_body_that_policy_refuses_after_it_was_sent_pauses_too(loop: str, postfix: PrivatePostfix) -> None:
    _, body, _ = of_three(loop, postfix, Letter("body", "you@example.org", "Hello", "VIRUS\n"))
    assert isinstance(body, NotSent) and body.pause and "it looks like a virus" in body.reason


def of_three(loop: str, relay: PrivatePostfix, letter: Letter) -> list[Any]:
    """The outcomes of a good letter, of this one, and of another good one; of the good ones the class."""
    good = letter._replace(recipient="you@example.org", body="Dear you\n")
    letters = [good._replace(reference="first"), letter, good._replace(reference="last")]
    outcomes: list[Any] = []

    async def story() -> None:
        async with opened(settings_for(relay, "starttls")) as adapter:
            for one in letters:
                outcomes.extend(await adapter.send([one]))

    run(loop, story)
    assert sorted(delivered(relay, 2)) == ["first", "last"], outcomes
    return [Accepted if isinstance(outcome, Accepted) else outcome for outcome in outcomes]
