"""The table of outcomes, where no server is needed to see it."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns.suppression.refused import reason_of
from vendors.outcomes import (
    Accepted,
    CallError,
    InDoubt,
    NotSent,
    Outcome,
    Refused,
    classify_error,
    classify_http,
    classify_smtp,
    parse_retry_after,
)

calm = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
NOW = 1_800_000_000.0
HEADERS = st.dictionaries(st.sampled_from(["retry-after", "location"]), st.text())


@calm
@given(st.one_of(st.none(), st.text(), st.floats().map(str), st.integers().map(str)))
def test_any_retry_after_is_a_wait_between_nothing_and_a_day(value: str | None) -> None:
    assert 0 <= parse_retry_after(value, now=NOW) <= 86_400


@calm
@given(st.integers(0, 86_400))
def test_a_retry_after_in_seconds_or_as_a_date_is_kept_to_the_second(seconds: int) -> None:
    assert parse_retry_after(str(seconds), now=NOW) == seconds
    assert parse_retry_after(formatdate(NOW + seconds, usegmt=True), now=NOW) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120, 120", 120),
        ("120,120,120", 120),
        ("60, 3600", 3600),
        (", 120", 120),
        ("120, soon", 120),
        (f"{formatdate(NOW + 90, usegmt=True)}, {formatdate(NOW + 90, usegmt=True)}", 90),
        ("0, 0", 0),
        ("soon, soon", 30),
        (",", 30),
        ("-1", 30),
        ("1e9", 30),
        ("NaN", 30),
        ("99999999999999999999", 86_400),
        ("1" * 400, 30),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 30),
        ("Fri, 31 Dec 2999 23:59:59 GMT", 86_400),
        (f"{NOW + 90:.0f}", 90),  # as X-RateLimit-Reset has it
        (f"{1000 * NOW + 90_500:.0f}", 90.5),
        (f"{NOW - 90:.0f}", 30),
        ("2027-01-15T08:01:30Z", 90),
        ("2027-01-15T09:01:30+01:00", 90),
        ("2027-01-15", 30),
        ("120s", 120),
        ("120 Seconds", 120),
        ("120;", 120),
        ("120m", 30),
        ("2 minutes", 120),
        ("90 min", 5400),
        ("1h", 3600),
        ("1500 ms", 1.5),
        ("PT5M", 300),
        ("pt1h1m1.5s", 3661.5),
        ("PT", 30),
        ("2027-01-15 08:01:30", 90),
        ("Fri, 15 Jan 2027 08:01:30 -0000", 90),
    ],
)
def test_a_retry_after_that_stands_twice_is_absurd_or_far_ahead(value: str, seconds: float) -> None:
    assert parse_retry_after(value, now=NOW) == seconds


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles"])
@pytest.mark.parametrize("value", ["Fri Jan 15 08:01:30 2027", "Fri, 15 Jan 2027 08:01:30"])
def test_a_date_without_a_zone_is_in_utc_wherever_the_machine_stands(
    value: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert parse_retry_after(value, now=NOW) == 90
    finally:
        monkeypatch.undo()
        time.tzset()


@calm
@given(st.integers(-5, 1200), HEADERS, st.binary() | st.just(b'{"id": "v"}'), st.booleans())
def test_only_two_kinds_of_answer_prove_acceptance(
    status: int, headers: dict[str, str], body: bytes, dedupe: bool
) -> None:
    outcome = classify_http(status, headers, body, now=NOW, dedupe=dedupe)
    if isinstance(outcome, Accepted):
        assert (status == 409 and dedupe) or 200 <= status < 300
        assert outcome.vendor_id
    if isinstance(outcome, Refused):
        assert 400 <= status < 500


@calm
@given(st.integers(300, 399), HEADERS, st.binary(), st.booleans())
def test_every_redirect_pauses_and_only_two_say_that_nothing_was_processed(
    status: int, headers: dict[str, str], body: bytes, dedupe: bool
) -> None:
    outcome = classify_http(status, headers, body, now=NOW, dedupe=dedupe)
    assert isinstance(outcome, NotSent if status in (307, 308) else InDoubt) and outcome.pause


@calm
@given(st.integers(100, 599), HEADERS)
def test_an_answer_that_was_cut_never_counts_as_accepted(status: int, headers: dict[str, str]) -> None:
    error = CallError("cut", written=True, status=status, headers=headers)
    outcome = classify_error(error, now=NOW)
    assert not isinstance(outcome, Accepted)
    if status < 300:
        assert outcome == InDoubt("cut")


def test_what_was_never_written_goes_again_whatever_happened() -> None:
    assert classify_error(CallError("refused", written=False), now=NOW) == NotSent("refused")


def test_a_5xx_is_doubt_unless_the_contract_calls_it_safe() -> None:
    assert classify_http(503, {}, b"", now=NOW) == InDoubt("http 503")
    safe = classify_http(503, {}, b"", now=NOW, safe_statuses=(503,))
    assert safe == NotSent("http 503", retry_after=30.0, scope="credential")


@pytest.mark.parametrize("phase", ["connect", "hello", "tls", "login", "mail"])
def test_before_the_recipient_is_named_no_reply_refuses_a_message(phase: str) -> None:
    assert classify_smtp(phase, 550, "5.7.1 no") == NotSent(  # type: ignore[arg-type]
        f"smtp 550 at {phase}: 5.7.1 no", scope="credential", pause=True
    )
    later = classify_smtp(phase, 451, "later")  # type: ignore[arg-type]
    assert later == NotSent(f"smtp 451 at {phase}: later", retry_after=30.0, scope="credential")


@pytest.mark.parametrize(
    ("phase", "code", "text", "expected"),
    [
        ("dot", 250, "2.0.0 Ok: queued as 4XyZ12", Accepted("4XyZ12")),
        ("dot", 250, "Ok 0100018f-aa-000000", Accepted("0100018f-aa-000000")),
        ("dot", 250, "2.6.0 message received", Accepted("250 2.6.0 message received")),
        ("dot", 250, "", Accepted("250")),
        ("dot", 354, "what", InDoubt("smtp 354 at dot: what")),
        ("dot", 554, "5.7.1 spam", NotSent("smtp 554 at dot: 5.7.1 spam", 600.0, "receiver", pause=True)),
        (
            "rcpt",
            421,
            "4.7.0 [TSS04] deferred due to user complaints",
            NotSent("smtp 421 at rcpt: 4.7.0 [TSS04] deferred due to user complaints", 30.0, "receiver"),
        ),
        ("rcpt", 550, "5.1.1 unknown", Refused("550", "5.1.1")),
        ("rcpt", 550, "unknown", Refused("550")),
        ("rcpt", 450, "4.2.0 greylisted", NotSent("smtp 450 at rcpt: 4.2.0 greylisted", retry_after=30.0)),
        ("rcpt", 530, "login", NotSent("smtp 530 at rcpt: login", scope="credential", pause=True)),
        ("dot", 452, "full", NotSent("smtp 452 at dot: full", retry_after=30.0)),
        ("dot", 454, "rate", NotSent("smtp 454 at dot: rate", retry_after=30.0, scope="credential")),
        ("rcpt", 421, "bye", NotSent("smtp 421 at rcpt: bye", retry_after=30.0, scope="credential")),
        ("data", 250, "odd", NotSent("smtp 250 at data: odd")),
    ],
)
def test_smtp_replies(phase: str, code: int, text: str, expected: Outcome) -> None:
    assert classify_smtp(phase, code, text) == expected  # type: ignore[arg-type]


OF_US = """
554 5.7.1 <you@example.com>: Relay access denied
550 5.7.1 Unable to relay
550 5.7.54 SMTP; Unable to relay recipient in non-accepted domain
553 5.7.1 <us@example.org>: Sender address rejected: not owned by user them
550 5.7.26 Unauthenticated email from example.org is not accepted due to domain's DMARC policy
550 5.1.8 <us@example.org>: Sender address rejected: Domain not found
550 5.1.7 Bad sender address
553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)
550 relay not permitted
550 relay not permitted, authentication required
550 Relaying denied. Proper authentication required.
550 We do not relay
550 you must authenticate first
554 Message rejected: Email address is not verified. The following identities failed the check
554 Message rejected: Sending suspended for this account.
530 5.7.0 Must issue a STARTTLS command first
535 5.7.8 Authentication credentials invalid
"""
OF_US_AT_ONE_RECEIVER = """
550 5.7.1 Service unavailable, Client host [192.0.2.1] blocked using Spamhaus
554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org
550 Sender verify failed
550 SPF check failed
550 rejected because 192.0.2.1 is in a black list at bl.spamcop.net
550 Your IP is blocked
550 5.1.1 Your IP is blocked
550 https://www.spamhaus.org/query/ip/192.0.2.1
"""
OF_OUR_QUOTA = """
550 5.4.5 Daily user sending limit exceeded. For more information on sending limits go to
550 You have exceeded your daily sending quota
550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients
554 5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceededException; Failed to process message
"""
OF_THE_RECIPIENT = """
550 5.1.1 <you@example.com>: Recipient address rejected: User unknown in virtual mailbox table
550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup
550 user unknown
550 No such user here
550 Mailbox unavailable
550 5.5.0 Requested action not taken: mailbox unavailable
552 5.2.2 Over quota
552 Quota exceeded (mailbox for user is full)
550 5.2.1 The email account that you tried to reach is disabled; it was blocked
550 5.2.1 The user you are trying to contact is receiving mail at a rate that prevents further delivery; rate limit
550 account disabled
550 5.4.1 Recipient address rejected: Access denied
550 5.4.4 Unable to route
553 5.1.3 Bad recipient address syntax
552 5.3.4 Message size exceeds fixed limit
554 Message refused, it looks like spam
552 Message size exceeds fixed maximum message size
554 5.5.1 no valid recipients
550 5.7.2 Mailing list expansion prohibited
550 5.7.17 Mailbox owner has changed
550 sorry, no mailbox here by that name. (#5.1.1)
"""


def replies(text: str) -> list[tuple[int, str]]:
    return [(int(line[:3]), line[4:]) for line in text.strip().splitlines()]


@pytest.mark.parametrize("phase", ["rcpt", "data", "dot"])
@pytest.mark.parametrize(("code", "text"), replies(OF_US))
def test_a_reply_that_speaks_of_us_pauses_and_refuses_nobody(phase: str, code: int, text: str) -> None:
    outcome = classify_smtp(phase, code, text)  # type: ignore[arg-type]
    assert outcome == NotSent(f"smtp {code} at {phase}: {text}", scope="credential", pause=True)


@pytest.mark.parametrize("phase", ["rcpt", "data", "dot"])
@pytest.mark.parametrize(("code", "text"), replies(OF_US_AT_ONE_RECEIVER))
def test_a_reply_that_may_speak_for_one_domain_lets_that_receiver_wait(phase: str, code: int, text: str) -> None:
    """Whether the credential is paused, others' answers decide."""
    outcome = classify_smtp(phase, code, text)  # type: ignore[arg-type]
    assert outcome == NotSent(f"smtp {code} at {phase}: {text}", 600.0, "receiver", pause=True)


@pytest.mark.parametrize("phase", ["connect", "mail", "rcpt", "data", "dot"])
@pytest.mark.parametrize(("code", "text"), replies(OF_OUR_QUOTA))
def test_a_used_up_quota_of_ours_refuses_nobody_and_waits_for_its_renewal(phase: str, code: int, text: str) -> None:
    outcome = classify_smtp(phase, code, text)  # type: ignore[arg-type]
    assert isinstance(outcome, NotSent) and outcome.scope == "credential" and not outcome.pause
    assert (outcome.retry_after or 0) >= 30


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        (
            "4.7.1 <us@example.org>: Sender address rejected: Deferring: Too many messages from sender in last 60",
            "receiver",
        ),
        ("4.3.2 STOREDRV.ClientSubmit; sender thread limit exceeded", "receiver"),
        ("4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume", "receiver"),
        ("4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP reputation", "receiver"),
        ("4.7.1 You have exceeded your daily sending quota", "credential"),
        ("4.2.1 The user you are trying to contact is receiving mail too quickly", "message"),
        ("4.2.2 The recipient's mailbox is over quota", "message"),
        ("4.7.1 Greylisted, please try again in 300 seconds", "message"),
    ],
)
def test_a_rate_of_ours_slows_the_receiver_first_and_a_mailbox_only_its_message(text: str, scope: str) -> None:
    outcome = classify_smtp("rcpt", 450, text)
    assert isinstance(outcome, NotSent) and outcome.scope == scope


def test_a_quota_waits_until_the_moment_that_the_vendor_states() -> None:
    until = "try again after Fri, 15 Jan 2027 10:00:00 UTC"
    body = f'{{"message": "Domain x is not allowed to send: recipient limit exceeded, {until}"}}'.encode()
    outcome = classify_http(420, {}, body, now=NOW)
    assert outcome == NotSent("http 420: too fast for the vendor", retry_after=7200.0, scope="credential")
    assert classify_http(420, {"retry-after": "7"}, body, now=NOW).retry_after == 7.0  # type: ignore[union-attr]


@pytest.mark.parametrize("phase", ["rcpt", "data", "dot"])
@pytest.mark.parametrize(("code", "text"), replies(OF_THE_RECIPIENT))
def test_a_reply_that_speaks_of_the_recipient_refuses_it(phase: str, code: int, text: str) -> None:
    outcome = classify_smtp(phase, code, text)  # type: ignore[arg-type]
    assert isinstance(outcome, Refused) and outcome.code == str(code)


UNKNOWN = """
550 5.1.1 <you@example.com>: Recipient address rejected: User unknown in virtual mailbox table
550 5.1.1 <quota.policy@example.com> is no mailbox of ours
550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup
553 5.1.3 Bad recipient address syntax
556 5.1.10 Domain does not accept mail (nullMX)
550 sorry, no mailbox here by that name. (#5.1.1)
550 user unknown
550 <you@example.com>: Recipient not found
550 5.1.0 No such user here
553 Unknown recipient
550 5.0.0 mailbox does not exist
"""
NOT_CLEARLY_UNKNOWN = """
550 Mailbox unavailable
550 5.5.0 Requested action not taken: mailbox unavailable
552 5.2.2 Over quota
552 5.1.1 Mailbox full
550 5.1.1 The recipient's mailbox is over quota
550 5.1.1 rejected by our policy
550 user unknown, or its mailbox is full
550 5.2.1 The email account that you tried to reach is disabled; it was blocked
550 5.4.1 Recipient address rejected: Access denied
550 5.7.17 Mailbox owner has changed; user unknown
554 user unknown
550 <unknown.user@example.com>: I do not want this
550 account disabled
"""


def unknown(phase: str, code: int, text: str) -> bool:
    outcome = classify_smtp(phase, code, text)  # type: ignore[arg-type]
    assert isinstance(outcome, Refused)
    return reason_of(outcome.code, outcome.sub_type) == "bounced"


@pytest.mark.parametrize(("code", "text"), replies(UNKNOWN))
def test_a_mailbox_that_there_is_not_is_known_by_its_code_or_by_the_text_of_rcpt(code: int, text: str) -> None:
    assert unknown("rcpt", code, text)
    assert unknown("dot", code, text) == ("5.1." in text and "5.1.0" not in text)


@pytest.mark.parametrize("phase", ["rcpt", "dot"])
@pytest.mark.parametrize(("code", "text"), replies(NOT_CLEARLY_UNKNOWN))
def test_a_full_or_closed_mailbox_or_a_policy_is_no_unknown_one(phase: str, code: int, text: str) -> None:
    assert not unknown(phase, code, text)


@pytest.mark.parametrize("codes", [["5.7.1"], ["550"], ["5.1.1", "550"]])
def test_a_relay_that_means_one_recipient_by_such_a_reply_can_be_known_for_it(codes: list[str]) -> None:
    assert classify_smtp("rcpt", 550, "5.7.1 not here", codes) == Refused("550", "5.7.1")
    assert classify_smtp("mail", 550, "5.7.1 not you", codes).pause  # type: ignore[union-attr]


@calm
@given(st.sampled_from(["rcpt", "data", "dot"]), st.integers(500, 599), st.text())
def test_a_refusal_by_a_relay_is_never_acceptance_nor_doubt(phase: str, code: int, text: str) -> None:
    outcome = classify_smtp(phase, code, text)  # type: ignore[arg-type]
    assert isinstance(outcome, Refused) or (
        isinstance(outcome, NotSent) and outcome.scope in ("credential", "receiver")
    )


@pytest.mark.parametrize(
    ("status", "cause"),
    [(401, "us"), (404, "us"), (307, "us"), (420, "capacity"), (429, "capacity"), (425, "vendor"), (503, "vendor")],
)
def test_what_an_http_status_puts_off_has_its_cause(status: int, cause: str) -> None:
    outcome = classify_http(status, {}, b"", now=0.0, safe_statuses=(503,))
    assert isinstance(outcome, NotSent) and outcome.cause == cause


@pytest.mark.parametrize(("pause", "cause"), [(False, "vendor"), (True, "us")])
def test_a_call_that_never_left_has_its_cause(pause: bool, cause: str) -> None:
    outcome = classify_error(CallError("no connection", written=False, pause=pause), now=0.0)
    assert isinstance(outcome, NotSent) and outcome.cause == cause
