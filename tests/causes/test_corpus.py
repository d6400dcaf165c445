"""The causes of real answers: what servers and services say, by their own documents, and whose fault it is.

The corpus (corpus/*.toml) names a source for every reply. Its causes were written by hand, before any rule was tried,
by the rules in corpus/README.md; the later files say how many were right at the first try.
"""

import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

from vendors.causes import NAMES, AnswerCause, Judgement, _judge_said, judge_code, judge_reply
from vendors.causes.reading import BLAMED, PAIRS
from vendors.causes.services import find_service
from vendors.outcomes import NotSent, Refused, classify_smtp

CORPUS = Path(__file__).with_name("corpus")
AT_LEAST = 400
RIGHT = 0.97
"""The share of the corpus that must be judged right."""
RIGHT_IN_EACH = 0.95
"""The share of each file, so that one kind of answers cannot fail behind the others."""

OURS = ("us", "capacity")


@dataclass(frozen=True)
class Reply:
    """An answer as it was said. `code`: the basic code; None for a service, or if the source quotes none.

    `also`: a second cause that can be defended; "" for none. `service`: whose code begins the text, before ": ";
    `reported`: in a delivery report.
    """

    origin: str
    source: str
    cause: str
    also: str
    code: int | None
    text: str
    file: str
    service: str = ""
    reported: bool = False

    @cached_property
    def judged(self) -> str:
        if table := find_service(self.service):
            code, _, explained = self.text.partition(": ")
            listed = table.find_cause(code, reported=True) if self.reported else ""
            return listed or judge_code(code, explained, None if self.reported else table).cause.value
        return judge_reply(self.code, self.text).cause.value

    @property
    def is_right(self) -> bool:
        return self.judged in (self.cause, self.also)

    def __str__(self) -> str:
        return f"{self.origin}: {self.code or ''} {self.text!r} is {self.cause}, judged {self.judged}"


@cache
def replies() -> list[Reply]:
    return [one for path in sorted(CORPUS.glob("*.toml")) for one in read_replies(path)]


def read_replies(path: Path) -> list[Reply]:
    return [
        Reply(
            origin["name"],
            origin["source"],
            one["cause"],
            one.get("also", ""),
            one.get("code"),
            one["text"],
            path.stem,
            origin.get("service", ""),
            origin.get("reported", False),
        )
        for origin in tomllib.loads(path.read_text("utf-8"))["origin"]
        for one in origin["replies"]
    ]


def test_every_reply_is_well_formed_and_has_a_source():
    assert len(replies()) >= AT_LEAST
    causes = {cause.value for cause in AnswerCause}
    for reply in replies():
        assert reply.cause in causes and reply.also in causes | {""}, reply.text
        assert reply.text.strip() == reply.text != "", reply.text
        assert reply.code is None or 400 <= reply.code < 600, reply.text
        assert reply.origin, reply.text
        assert not reply.service or find_service(reply.service), reply.service
        assert reply.source.startswith(("https://", "http://", "RFC ")), reply.source


def test_no_reply_is_there_twice():
    texts = Counter((reply.service, reply.reported, reply.text.casefold()) for reply in replies())
    assert [text for text, times in texts.items() if times > 1] == []


def test_the_causes_are_judged_right():
    wrong = [str(reply) for reply in replies() if not reply.is_right]
    assert len(wrong) <= len(replies()) * (1 - RIGHT), "\n".join(wrong)


@pytest.mark.parametrize("file", sorted(path.stem for path in CORPUS.glob("*.toml")))
def test_each_kind_is_judged_right(file):
    of_file = [reply for reply in replies() if reply.file == file]
    wrong = [str(reply) for reply in of_file if not reply.is_right]
    assert len(wrong) <= len(of_file) * (1 - RIGHT_IN_EACH), "\n".join(wrong)


def test_nothing_about_us_is_taken_for_the_recipients_fault():
    taken = [str(one) for one in replies() if one.cause in OURS and one.judged == "recipient" and not one.is_right]
    assert taken == [], "\n".join(taken)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("recipient_blocked", "recipient"),
        ("number_blacklisted", "recipient"),
        ("blocked_by_recipient", "recipient"),
        ("recipient_daily_limit", "recipient"),
        ("page_limit_exceeded", "content"),
        ("sender_blocked", "us"),
        ("daily_limit_exceeded", "capacity"),
        ("account_daily_limit", "capacity"),
    ],
)
def test_a_code_that_names_what_it_is_about_closes_the_credential_for_nobody_else(code, cause):
    assert judge_code(code).cause == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Mobile number is blacklisted", "recipient"),
        ("The blacklisted number is a mobile one", "recipient"),
        ("Sender ID is blacklisted", "us"),
        ("Your account is blacklisted", "us"),
        ("The text contains blacklisted words", "content"),
        ("The limit of messages is exceeded", "capacity"),
        ("You exceeded the number of messages", "capacity"),
        ("The text exceeds the limit", "content"),
    ],
)
def test_the_subject_decides_in_whichever_order_it_stands(text, cause):
    assert judge_reply(None, text).cause == cause


@pytest.mark.parametrize("code", ["isv.MOBILE_NUMBER_ILLEGAL", "isv.mobile_number_illegal", "ESME_RINVDSTADR"])
def test_a_known_name_decides_before_the_words_beside_it(code):
    assert judge_reply(None, f"{code} your account is suspended").cause == "recipient"
    assert judge_code(code, "account suspended").cause == "recipient"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("host mx.example.org[192.0.2.1] said: 550 5.1.1 User unknown (in reply to RCPT TO command)", "recipient"),
        ("5.1.0 - Unknown address error 550-'5.7.1 Blocked by Spamhaus' (delivery attempts: 0)", "us"),
        ("Rejected by the recipient domain. The other server returned: 554 5.7.1 Blocked, see spamhaus.org", "us"),
        ("Unknown user list cannot be read; the server said: 552 5.2.2 Mailbox full", "recipient"),
    ],
)
def test_the_reply_that_another_server_gave_decides(text, cause):
    assert judge_reply(550, text, "5.0.0").cause == cause


@pytest.mark.parametrize(
    "text",
    [
        "SMTP error from remote mail server after MAIL FROM:<ann@example.org> SIZE=1024: 550 5.1.1 User unknown",
        "SMTP error from remote mail server after initial connection: 550 5.1.1 User unknown",
        "host mx.example.org[192.0.2.1] refused to talk to me: 550 5.1.1 User unknown",
        "host mx.example.org[192.0.2.1] said: 550 5.1.1 User unknown (in reply to MAIL FROM command)",
    ],
)
def test_a_server_that_does_not_know_the_recipient_yet_says_nothing_of_the_recipient(text):
    assert judge_reply(550, text).cause == "us"
    assert judge_reply(450, text).cause == "vendor"
    assert judge_reply(550, "5.1.1 User unknown", is_early=True).cause == "us"
    assert judge_reply(550, "5.1.1 User unknown").cause == "recipient"


def test_a_link_to_a_block_list_says_who_is_blocked():
    assert judge_reply(550, "Rejected, see https://www.spamhaus.org/query/ip/192.0.2.1").cause == "us"
    assert judge_reply(550, "User unknown, see https://example.org/blocked").cause == "recipient"


def test_what_follows_an_unknown_recipient_changes_nothing():
    assert judge_reply(550, "5.1.1 User unknown. This message is in MIME format.").cause == "recipient"
    assert judge_reply(550, "No such user 503 Issue RCPT TO: command before DATA command").cause == "recipient"
    assert judge_reply(550, "5.1.1 User unknown or sender blocked").cause != "recipient"


@pytest.mark.parametrize(
    "reason", ["User unknown in virtual mailbox table", "mailbox does not exist", "Domain not found"]
)
def test_why_a_sender_was_rejected_is_not_about_the_recipient(reason):
    assert judge_reply(550, f"<ann@example.org>: Sender address rejected: {reason}").cause == "us"
    assert judge_reply(550, f"<ann@example.org>: Recipient address rejected: {reason}").cause == "recipient"


@pytest.mark.parametrize(
    "text",
    [
        "Unable to verify sender: mailbox does not exist",
        "Return path: user unknown",
        "sender callout: 550 no such user",
        "From address: user unknown",
        "Login failed: unknown user",
        "5.7.8 user not found",
        "5.1.7 Invalid address",
        "unknown host in HELO",
        "you have sent to too many non-existent users",
        "Blocked: too many recipients are invalid",
        "Recipient address rejected: your domain is blacklisted",
        "mailbox unavailable due to your IP reputation",
    ],
)
def test_words_of_recipients_in_an_answer_about_us_blame_no_recipient(text):
    assert judge_reply(550, text).cause == "us"


@pytest.mark.parametrize(
    "text", ["Domain does not exist", "No thank you: Domain not found", "Unknown domain example.org"]
)
def test_a_domain_that_does_not_exist_is_the_recipients_only_after_rcpt_or_if_the_words_say_so(text):
    """Servers look the sender's domain up as well; before RCPT it cannot be another."""
    assert judge_reply(550, text).cause == "us"
    assert judge_reply(550, text, is_early=True).cause == "us"
    assert judge_reply(550, text, is_early=False).cause == "recipient"
    assert judge_reply(550, f"{text} (in reply to RCPT TO command)").cause == "recipient"
    assert judge_reply(550, f"5.1.2 {text}").cause == "recipient"
    assert judge_reply(550, f"Recipient rejected: {text}").cause == "recipient"


@pytest.mark.parametrize(
    ("code", "cause"),
    [("0x0000000B", "recipient"), ("0x0000000a", "us"), ("0x00000058", "capacity"), ("0x00000008", "vendor")],
)
def test_smpp_may_give_the_number_of_its_code(code, cause):
    assert judge_reply(None, f"command_status {code}").cause == cause
    assert judge_code(code).cause == cause


@pytest.mark.parametrize(
    ("field", "cause"),
    [("to", "recipient"), ("dest", "recipient"), ("from", "us"), ("api_pwd", "us"), ("txt", "content")],
)
def test_a_field_of_the_request_says_whose_fault_it_is(field, cause):
    assert judge_reply(None, f"104 Missing parameter: {field}").cause == cause
    assert judge_reply(None, f"E621 The '{field}' is required").cause == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("looked like SPAM", "content"),
        ("blocked as spam", "content"),
        ("your IP is blocked as spam source", "us"),
        ("too much spam from your server", "us"),
    ],
)
def test_a_letter_that_looks_like_spam_blames_the_letter_unless_the_words_blame_the_server(text, cause):
    assert judge_reply(550, text).cause == cause


def test_a_deferral_that_names_nobody_is_the_servers_whatever_its_code() -> None:
    for text in ("4.7.1 Message temporarily deferred", "4.7.1 Temporarily rejected. Try again later."):
        assert judge_reply(451, text) == Judgement(AnswerCause.VENDOR, alone=True)
    assert judge_reply(451, "4.7.1 Messages from your server are temporarily deferred").cause == "us"
    assert judge_reply(451, "4.7.0 Problem on SPF lookup").cause == "vendor"


@pytest.mark.parametrize("quoted", ["back@ours.example", "Back@Ours.example"])
def test_an_answer_that_quotes_the_senders_address_alone_speaks_of_the_sender(quoted: str) -> None:
    def judged(text: str) -> str:
        return judge_reply(550, text, sender="back@ours.example", recipient="ann@example.org").cause.value

    assert judged(f"5.1.1 <{quoted}>: User unknown") == "us"
    assert judged(f"<{quoted}> is disabled") == "us"
    assert judged("5.1.1 <ann@example.org>: User unknown") == "recipient"
    assert judged(f"5.1.1 <ann@example.org>: User unknown (from <{quoted}>)") == "recipient"
    assert judged("5.1.1 <bob@example.org>: User unknown") == "recipient"
    assert judge_reply(550, f"5.1.1 <{quoted}>: User unknown").cause == "recipient"


def test_the_senders_address_reaches_the_judge_of_a_relays_reply() -> None:
    reply = "5.1.1 <back@ours.example>: no such user"
    assert type(classify_smtp("rcpt", 550, reply, recipient="ann@example.org")) is Refused
    outcome = classify_smtp("rcpt", 550, reply, sender="back@ours.example", recipient="ann@example.org")
    assert type(outcome) is NotSent and outcome.cause == "us"


def test_a_text_that_begins_with_a_code_is_a_servers() -> None:
    assert judge_reply(None, "550 rejected because of not in approved list").cause == "us"
    assert judge_reply(None, "451 Duplicate order").cause == "content"


def test_what_an_answer_merely_mentions_never_blames_the_recipient():
    assert "recipient" not in BLAMED.values()
    assert judge_reply(None, "Sending pool: 17").cause == "us"
    assert judge_reply(None, "Recipient: 17").cause == "unknown"
    assert judge_reply(None, "Template and recipient: 17").cause == "unknown"


def test_an_answer_that_differs_by_its_address_alone_is_read_once():
    before = _judge_said.cache_info().misses
    for number in range(100):
        judge_reply(550, f"5.1.1 <person{number}@example.org>: no such person in our house of a hundred rooms")
    assert _judge_said.cache_info().misses - before == 1


@pytest.mark.parametrize("code", ["unknown_user", "user not found", "INVALID-USER", "user_disabled"])
def test_a_service_that_names_a_user_alone_may_mean_our_login(code):
    assert judge_code(code).cause == "unknown"
    assert judge_code("user_opted_out").cause == "recipient"
    assert judge_code("5.1.1", "no such user").cause == "recipient"


def test_names_of_fields_and_codes_are_no_words():
    assert judge_reply(None, '{"errors": {"to": ["is invalid"]}}').cause == "recipient"
    assert judge_reply(None, '{"errors": {"from": ["is invalid"]}}').cause == "us"
    assert judge_reply(None, '{"message-count": "1", "error-text": "Bad Credentials"}').cause == "us"
    assert judge_reply(None, '{"message": "from parameter is not a valid address"}').cause == "us"
    assert judge_reply(None, '{"message": "to parameter is not a valid address"}').cause == "recipient"
    assert judge_reply(550, "5.5.0 Messages of yours are not wanted here").cause != "capacity"


@pytest.mark.parametrize(
    ("state", "cause"),
    [("UNDELIV", "unknown"), ("REJECTD", "unknown"), ("DELETED", "unknown"), ("EXPIRED", "recipient")],
)
def test_a_receipt_is_judged_by_its_state_and_not_by_our_own_message(state, cause):
    receipt = f"id:17 sub:001 dlvrd:000 submit date:2611301200 done date:2611301201 stat:{state} err:021"
    assert judge_reply(None, receipt).cause == cause
    assert judge_reply(None, f"{receipt} Text:Your account is blocked, you have no credit").cause == cause


@pytest.mark.parametrize(
    ("path", "cause"), [("personalizations.0.to.0.email", "recipient"), ("from.email", "us"), ("subject", "content")]
)
def test_the_path_to_a_part_of_the_request_says_whose_fault_it_is(path, cause):
    assert judge_reply(None, f'{{"message": "Does not contain a valid value.", "field": "{path}"}}').cause == cause


def test_a_name_that_blames_us_leaves_it_to_words_about_a_quota():
    assert judge_reply(None, "LimitExceededException: Daily message quota exceeded.").cause == "capacity"
    assert judge_code("LimitExceededException", "Daily message quota exceeded.").cause == "capacity"
    assert judge_reply(None, "LimitExceededException").cause == "us"
    assert judge_reply(None, "AccountSuspendedException: recipient unknown").cause == "us"


@pytest.mark.parametrize("said", ["is now disabled", "was not found", "unknown", "does not exist here"])
def test_the_address_with_which_a_server_begins_is_the_recipients(said):
    assert judge_reply(550, f"<ann@example.org> {said}").cause == "recipient"
    assert judge_reply(550, f"host mx.example.org[192.0.2.1] said: 550 <ann@example.org> {said}").cause == "recipient"
    assert judge_reply(550, f"<ann@example.org>: sender {said}").cause == "us"
    assert judge_reply(550, "<ann@example.org> is not a valid sender").cause == "us"


@pytest.mark.parametrize("reason", ["Account deleted by user", "Account locked by abuse team", "Nonexistent user"])
def test_an_account_for_which_a_recipient_is_rejected_is_the_recipients(reason):
    assert judge_reply(540, f"5.7.1 <ann@example.org> Recipient address rejected: {reason}").cause == "recipient"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("4.7.1 Your host has sent mail to many unknown users", "us"),
        ("5.2.0 Mailbox unavailable, your domain has a problem", "us"),
        ("5.2.0 Message limit of this mailbox reached: 300 per hour", "capacity"),
        ("5.2.122 The recipient has exceeded their limit of messages they can receive per hour", "recipient"),
        ("5.1.1 User unknown. Your IP was noted", "recipient"),
    ],
)
def test_words_about_us_or_a_rate_overrule_a_recipients_fault_unless_the_code_is_clear(text, cause):
    assert judge_reply(550, text).cause == cause


def test_a_mailbox_that_a_service_names_may_be_our_own():
    assert judge_reply(None, "MailboxNotEnabledForRESTAPI").cause == "us"


def test_a_long_answer_is_read_in_bounded_time():
    """Words that many patterns begin with, again and again: no pattern may go back over all of them."""
    for word in ("your ", "number of ", "not been ", "sender ", "x", "from the ", ": 550 ", "said: 550 5.1.1 ", "a-"):
        judge_reply(None, word * 100_000 + "!")


def test_subjects_and_states_that_pairs_name_have_words():
    table = tomllib.loads(PAIRS.read_text("utf-8"))
    for kind in ("pairs", "mail", "service"):
        for subject, row in table[kind].items():
            assert subject in table["subjects"]
            assert set(row) <= {cause.value for cause in AnswerCause}
            assert {state for states in row.values() for state in states} <= set(table["states"])


def test_a_name_of_a_code_stands_for_one_cause():
    names = Counter(
        name.casefold()
        for vendor in tomllib.loads(NAMES.read_text("utf-8"))["vendor"]
        for cause in AnswerCause
        for name in vendor.get(cause.value, ())
    )
    assert [name for name, times in names.items() if times > 1] == []
