"""The causes of real answers: what servers and services say, by their own documents, and whose fault it is.

The corpus (corpus/*.toml) names a source for every reply. Its causes were written by hand, before any rule was tried.
"""

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from vendors.causes import AnswerCause, judge_code, judge_reply

CORPUS = Path(__file__).with_name("corpus")
AT_LEAST = 400
RIGHT = 0.97
"""The share of the corpus that must be judged right."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it was said. `code`: the basic code; None for a service, or if the source quotes none."""

    origin: str
    source: str
    cause: str
    code: int | None
    text: str

    @property
    def judged(self) -> str:
        return judge_reply(self.code, self.text).cause.value

    def __str__(self) -> str:
        return f"{self.origin}: {self.code or ''} {self.text!r} is {self.cause}, judged {self.judged}"


def replies() -> list[Reply]:
    origins = [
        one for path in sorted(CORPUS.glob("*.toml")) for one in tomllib.loads(path.read_text("utf-8"))["origin"]
    ]
    return [
        Reply(origin["name"], origin["source"], one["cause"], one.get("code"), one["text"])
        for origin in origins
        for one in origin["replies"]
    ]


def test_every_reply_is_well_formed_and_has_a_source():
    assert len(replies()) >= AT_LEAST
    causes = {cause.value for cause in AnswerCause}
    for reply in replies():
        assert reply.cause in causes, reply.text
        assert reply.text.strip() == reply.text != "", reply.text
        assert reply.code is None or 400 <= reply.code < 600, reply.text
        assert reply.origin, reply.text
        assert reply.source.startswith(("https://", "http://", "RFC ")), reply.source


def test_no_reply_is_there_twice():
    texts = Counter(reply.text.casefold() for reply in replies())
    assert [text for text, times in texts.items() if times > 1] == []


def test_the_causes_are_judged_right():
    wrong = [str(reply) for reply in replies() if reply.judged != reply.cause]
    assert len(wrong) <= len(replies()) * (1 - RIGHT), "\n".join(wrong)


def test_nothing_about_us_is_taken_for_the_recipients_fault():
    taken = [str(reply) for reply in replies() if reply.cause in ("us", "capacity") and reply.judged == "recipient"]
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
