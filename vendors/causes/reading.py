"""Finds the subject of an answer, such as a recipient or an account, and the state that it reports.

Words alone mislead: "blocked" may be said of a phone number, an account or a file. So the subject nearest to a state
decides, before or after it. Subjects, states and their causes are data (subjects.toml).
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAIRS = Path(__file__).with_name("subjects.toml")
READ_MAX = 400
"""Characters that are read; the subject comes early."""
GAP_MAX = 60
"""Characters between a subject and what is said of it."""
BEHIND = 15
"""Characters by which a subject behind its state counts as farther, unless it follows at once ("invalid sender")."""
WEAK_STATE = "rejected"
"""It counts only if no clause says more: "Recipient rejected: sending quota exceeded"."""
REJECTED_SENDER = ("us", "recipient")
"""After "Sender address rejected" a user who is unknown is the sender."""
OBJECT, NEARER = ("count", "exceeded"), 3.0
"""A subject that is nearer behind its state: "The mailbox has exceeded its sending limit" speaks of the limit."""
_LEAVE = re.compile(  # the rules know these better, whomever the sentence names
    r"spam|unwanted|\bspf\b|dkim|dmarc|captcha|attack|reputation|phish|\bvirus|unsolicited|abuse|malware|gr[ae]y-?list",
    re.IGNORECASE,
)
_CAPITALS = re.compile(r"\b(?!RCPT TO\b|MAIL FROM\b)[A-Z]{2,}(?:[ _-][A-Z]{2,})+\b")
_SENTENCE = re.compile(r"[a-z]{3}|[^\x00-\xff]")
_DROPPED = re.compile(  # quotes around words, IP addresses, codes, who it was that refused, and the order of commands
    r"(?<!\w)['\"`](?=\w)|(?<=\w)['\"`](?!\w)|[\[(]?\b\d{1,3}(?:\.\d{1,3}){3}\b[\])]?"
    r"|(?<![\d.])[245]\.\d{1,3}\.\d{1,3}(?![\d.])|\b(?:must precede|need RCPT command) \[?[Dd][Aa][Tt][Aa]\]?"
    r"|\b(?:by|for|on|with) (?:the |this |your )?(?:carrier|operator|network|provider)\b"
    r"(?! (?:\w+ )?(?:error|fail|down))"
)
_CLAUSE = re.compile(r"[.;:!?|\n。；：！，]+(?:\s|$)|\s[-/]\s|(?<=[。；：！，（）])")
_START = r"(?=\S)(?!(?<=[a-z0-9])[a-z0-9])"  # hundreds of words need not be tried inside a word
_EDGES = " \t{}[]\"':,"
_BLANK = re.compile(r" (?![*?+])")
Causes = dict[tuple[str, str], str]


BLAMED = {
    "sender": "us", "ip": "us", "our_account": "us", "account": "us", "auth": "us", "money": "us", "contract": "us",
    "content": "content", "file": "content", "header": "content", "server": "vendor", "remote": "vendor",
}  # fmt: skip
"""The cause of a subject of which nothing is said that is known. Nothing blames the recipient without a word."""
NOBODY = frozenset({"recipient", "mailbox", "user", "address"})
OTHERS = frozenset(BLAMED) - {"account"}
NOT_GONE = frozenset({"exceeded", "unavailable", "busy", "timeout", "too_big", "many", "later", "lacking", "absent"})
"""States of a mailbox that exists."""
PALE = frozenset({"message", "email"})
"""Subjects that any answer may name, so the next one counts if nothing is known of them."""
NEUTRAL = frozenset({"message", "email", "sending", "service", "query"})


@dataclass(frozen=True, slots=True)
class SubjectTable:
    """Words of subjects and states, and the causes of pairs, for answers of mail servers and for those of services."""

    subjects: re.Pattern[str]
    states: re.Pattern[str]
    of_mail: Causes
    of_services: Causes


def read_subject(text: str, *, is_service: bool) -> str:
    """Return the cause of the first clause whose subject and state have one; "" if none has."""
    if _LEAVE.search(text):
        return ""
    table = _subject_table()
    causes = table.of_services if is_service else table.of_mail
    weak = ""
    for clause in _split_clauses(text[:READ_MAX]):
        for state, cause in _causes_in(clause.strip(_EDGES), table, causes):
            if state == WEAK_STATE:
                weak = weak or cause
            elif (weak, cause) != REJECTED_SENDER:
                return cause
    return weak


def names_nobody(text: str) -> bool:
    """Tell whether a mail server says in another language than English that a mailbox or its user does not exist.

    Never if any clause names a sender, an IP address or a server, too, as it may be theirs that is not known, or says
    that the mailbox exists.
    """
    if _LEAVE.search(text):
        return False
    table, subjects, states, is_named = _subject_table(), set[str](), set[str](), False
    for clause in _split_clauses(text[:READ_MAX]):
        of_clause = {one.lastgroup or "" for one in table.subjects.finditer(clause)}
        said = {one.lastgroup or "" for one in table.states.finditer(clause)}
        is_named |= bool(of_clause & NOBODY) and "nonexistent" in said
        subjects, states = subjects | of_clause, states | said
    return is_named and not subjects & OTHERS and not states & NOT_GONE


def read_subject_alone(text: str) -> str:
    """Return the cause of the only kind of subject that an answer names; "" if it names several, or the recipient."""
    found = {one.lastgroup or "" for one in _subject_table().subjects.finditer(text[:READ_MAX])} - NEUTRAL
    causes = {BLAMED.get(subject, "") for subject in found}
    return causes.pop() if len(causes) == 1 else ""


def _split_clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a text. A code's name in capitals comes last, because the sentence beside it is clearer."""
    said = text.replace("’", "'")
    names = _CAPITALS.findall(said)
    without_names = _CAPITALS.sub(" ", said)
    if names and _SENTENCE.search(without_names):
        yield from _CLAUSE.split(_DROPPED.sub(" ", without_names))
        yield from names
    else:
        yield from _CLAUSE.split(_DROPPED.sub(" ", said))


def _causes_in(clause: str, table: SubjectTable, causes: Causes) -> Iterator[tuple[str, str]]:
    """Yield the states that have a cause with their nearest subject, in the order of the sentence."""
    states = list(table.states.finditer(clause))
    subjects = list(table.subjects.finditer(clause)) if states else []
    for state in states:
        near = [one for one in subjects if _is_beside(one, state)]
        near = [one for one in near if not _is_complement(one, state)] or near
        gaps = sorted((_gap_between(one, state), one.lastgroup or "") for one in near)
        name = state.lastgroup or ""
        if cause := _cause_of_nearest([subject for gap, subject in gaps if gap <= GAP_MAX], name, causes):
            yield name, cause


def _cause_of_nearest(subjects: list[str], state: str, causes: Causes) -> str:
    """Return the cause of the first subject, or of the next if the first is pale. The next never blames a recipient."""
    for place, subject in enumerate(subjects):
        cause = causes.get((subject, state), "")
        if cause or subject not in PALE:
            return "" if place and cause == "recipient" else cause
    return ""


def _is_complement(subject: re.Match[str], state: re.Match[str]) -> bool:
    """Return True if the subject completes the state: "number" in "The sender is not a valid number"."""
    return subject.start() >= state.end() and state[0].lower().startswith(("not a ", "not an "))


def _is_beside(subject: re.Match[str], state: re.Match[str]) -> bool:
    """Return True if the two may be a pair.

    "Messages exceed the limit" speaks of the limit: each answer is of a message.
    """
    overlap = subject.start() < state.end() and state.start() < subject.end()
    return not overlap and (subject.lastgroup, state.lastgroup) != (
        "message",
        "exceeded",
    )


def _gap_between(subject: re.Match[str], state: re.Match[str]) -> float:
    if subject.end() <= state.start():
        return state.start() - subject.end()
    behind = subject.start() - state.end()
    if (subject.lastgroup, state.lastgroup) == OBJECT:
        return max(0.0, behind - NEARER)
    return behind + (1.5 if behind < 2 else BEHIND)


@cache
def _subject_table() -> SubjectTable:
    found = tomllib.loads(PAIRS.read_text(encoding="utf-8"))
    common, of_mail, of_services = (_read_pairs(found[name]) for name in ("pairs", "mail", "service"))
    return SubjectTable(
        _one_of(found["subjects"]),
        _one_of(found["states"]),
        common | of_mail,
        common | of_services,
    )


def _read_pairs(rows: dict[str, dict[str, list[str]]]) -> Causes:
    return {
        (subject, state): cause for subject, row in rows.items() for cause, states in row.items() for state in states
    }


def _one_of(groups: dict[str, list[str]]) -> re.Pattern[str]:
    """Return one pattern for all words; the name of its group is their class."""
    parts = (f"(?P<{name}>{'|'.join(_whole_word(one) for one in listed)})" for name, listed in groups.items())
    return re.compile(rf"{_START}(?:{'|'.join(parts)})", re.IGNORECASE)


def _whole_word(word: str) -> str:
    """Return a pattern for whole words; Chinese, Japanese, Korean and Thai words stand without blanks."""
    if any(sign >= "\u2e80" or "\u0e00" <= sign <= "\u0e7f" for sign in word):
        return word
    start, end = (r"(?<![a-z0-9])", r"(?![a-z0-9])") if word.isascii() else (r"\b", r"\b")  # Chinese may adjoin it
    return rf"{start}(?:{_BLANK.sub(' +', word.replace(' ?', ' *'))}){end}"
