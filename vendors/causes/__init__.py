"""The cause of a vendor's answer: whose fault a refusal or a deferral is.

One module judges every code and text that a mail server or a service gives: replies of SMTP, delivery status
notifications, texts of HTTP answers. The rules are data (replies.toml); the first rule that fits decides.
`vendors/outcomes.py` and `campaigns/audience/bounces/kinds.py` say what follows from a cause.
"""

import re
import tomllib
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from vendors.causes.reading import read_subject, read_subject_alone
from vendors.causes.services import ServiceCodes, find_linked

RULES, NAMES = Path(__file__).with_name("replies.toml"), Path(__file__).with_name("names.toml")
TEXT_MAX = 2_000
"""Characters of an answer that are read."""
_ADDRESS = re.compile(r"[^\s<>:;,()\"]{1,254}@[^\s<>:;,()\"]{1,254}")
_MARK = "\N{CURRENCY SIGN}"  # stands for an address, so that answers to many recipients are the same
# A server may begin with an address, or leave it out, and give its state: "<ann@example.org> is disabled".
_NAMED = re.compile(
    rf"(^|\bsaid: ?)([^\w{_MARK}]*(?:\d[\d\W]*?)?)"
    rf"(?:{_MARK}\W{{0,6}}(?=(?:was|were|not|unknown|isn't|doesn't|didn't|user unknown)\b)"
    rf"|(?:{_MARK}\W{{0,6}})?(?=(?:is|does|has|cannot|no longer)\b))",
    re.IGNORECASE,
)
_WEB = re.compile(r"(?:https?://|\bwww\.)\S+")
_LISTS = re.compile(r"spamhaus|spamcop|sorbs|barracudacentral|uceprotect|senderscore|cloudmark|abuseat", re.IGNORECASE)
_NAME = re.compile(
    r"\b[A-Za-z]+(?:[A-Z][a-z]+|(?<=[a-z]{2})[A-Z]{2,}|_[A-Za-z]+|-[A-Z]{2,})+\b"
)  # as InvalidPhoneNumber, NO_CREDIT, NO-CREDIT
_CODE = re.compile(r"0x[0-9A-Fa-f]{8}|[A-Za-z]\w*(?:-\w+)*(?:\.\w+)?")  # SMPP writes its codes as 0x0000000B
_REFUSED = re.compile(r"\W*(55[0-4])[ -]")  # with fewer codes than _BASIC, because services number their own answers
_BASIC = re.compile(r"\W*(421|45\d|52[1-5]|53\d|55\d|571)[ -]")
# Words of every bounce and the names of a JSON answer's fields, which say nothing of the cause.
_NOISE = re.compile(
    r"\(in reply to [^)]*\)+|delivery to the following recipients? (has been delayed|failed( permanently)?)"
    r"|could not be delivered to (one or more|all) of its recipients|delivery temporarily suspended:"
    r"|technical details of \w+ failure"
    r"|the given data was invalid|unprocessable( entity)?|transaction failed:|the api returned an error:?( error:)?"
    r"|\"(\w+[_-]text|[\w-]*(code|count|details?|description|errors?|messages?|msg|name|reason|status|title|type))\"(?=\s*:)",
    re.IGNORECASE,
)
_FIELD = re.compile(r'"([A-Za-z][\w.]*)"\s*:\s*\[?\s*"?')  # of a JSON answer, as "to": ["is invalid"]
_QUOTE = "['\"`‘’]"
_PARAMETER = re.compile(  # a field of the request: "Missing parameter: dest", "'to' is required"
    rf"\b(?:parameter|param|field|attribute|argument)s?\b(?: name)?\s?[:=]?\s?{_QUOTE}?([a-z]\w{{1,20}})\b{_QUOTE}?"
    r"(?=\W*$|\W+(?:is|was|are|must|cannot|has)\b)"
    rf"|(?<!\w){_QUOTE}([a-z]\w{{1,20}}){_QUOTE}"
    r"(?= (?:field |parameter )?(?:is|was|are|must|cannot|can|has|required|field|parameter)\b)"
    r"|\bthe ([a-z]\w{1,20}) (?:field|parameter)(?= (?:is|was|must|cannot|can|has|contains|exceeds)\b)",
    re.IGNORECASE,
)
_PATH = re.compile(  # where a request is wrong, as "field": "personalizations.0.to.0.email"
    r'"(?:field|param(?:eter)?|property|path|pointer|attribute|argument)"\s*:\s*"([\w.\[\]/$-]{1,80})"', re.IGNORECASE
)
_PART = re.compile(r"[A-Za-z]\w*")
# A receipt of SMPP (3.4, Appendix B) ends with the first words of our own message.
_RECEIPT = re.compile(r"\bstat:\s?(\w+)", re.IGNORECASE)
_ADDRESSED = re.compile(r"(\brecipient (?:address )?rejected:? (?:the |this )?)(?:account|user)\b", re.IGNORECASE)
_HYPHENS = re.compile(r"\b[a-z]+(?:-[a-z]+){2,}\b")  # as rejected-wrong-user-id
_SEAM = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_-]")
_WORD = re.compile(r"[^\W\d_]{3}")
_ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.])")
# The reply of another server that a relay, a bounce or a service quotes; it begins with a code.
_QUOTED = re.compile(
    r"(?:(?<!code)(?<!info)[:'\"\[(]|\bsaid|\breturned) ?"
    r"(?:(421|45\d|52[1-5]|53\d|55\d|571)[ -]|(?=[45]\.\d\.\d{1,3} ))(?=.*[^\W\d_]{3})",
    re.DOTALL,
)
_BLANK_LINE = re.compile(r"\n\s*\n")
_EARLY = re.compile(
    r"\b(?i:after|reply to|response to) (?:initial connection|HELO|EHLO|MAIL)\b"
    r"|(?i:refused to talk to me|my name was rejected)"
)
_AFTER_RCPT = re.compile(r"\b(?:after|reply to|response to) RCPT\b", re.IGNORECASE)
# A domain that does not exist may be the sender's as well as the recipient's.
_NO_DOMAIN = re.compile(
    r"\bdomain( name)?\b.{0,60}?\b(not (be )?(found|exist|known|resolved?|valid)|n.t exist|unknown|invalid)\b"
    r"|\b(unknown|invalid|no such|non-?existent|bad) domain\b",
    re.IGNORECASE,
)
_OF_RECEIVER = re.compile(
    r"recipient|host or domain|at this location|tenant"
    r"|\brcpt\b|\bdestination|\bmx\b|\bdns\b|name ?serv|nxdomain|\bremote\b|\buser\b"
    r"|(receive|accept|handle|host)s? (e-?)?mail|in (the )?e-?mail address"
    r"|(?<![\d.])[45]\.(1\.([1-6]|10)|4\.(4|310))(?![\d.])",
    re.IGNORECASE,
)
# Words that an answer about a recipient does not have, unless its code says that the recipient does not exist.
_OURS = re.compile(
    r"\byour (mail ?|e-?mail )?(server|host|ip|domain|network|account|login|password|api|credentials|sender|hostname)\b"
    r"|\b(outgoing|outbound|reputation|dmarc|dkim|spf)\b|\bsend(ing|er'?s?) (limit|quota|rate|ip|domain|host)\b"
    r"|(?P<rate>\b(per|an|each|every) (hour|day|minute|second)\b(?!.{0,40}receiv)|\bhourly\b)",
    re.IGNORECASE,
)
_NO_RECIPIENT = re.compile(r"[45]\.1\.([1236]|10)|[45]\.2\.122")
_RECEIVES = re.compile(r"receiv|recipient('s)? .{0,30}limit", re.IGNORECASE)
# A user may be our login if the service says no more about it.
_USER = re.compile(
    r"[\W\d_]*((unknown|invalid|wrong|no such|disabled|inactive) user"
    r"|user (is |was )?(not (found|active)|unknown|invalid|disabled|inactive|suspended|locked|does not exist))[\W\d_]*",
    re.IGNORECASE,
)
_OF_SENDER = re.compile(r"\bsender\b|call-?(out|back)\b|verif", re.IGNORECASE)
_AFTER = re.compile(
    r"\b(?:after|until|at) ((?:mon|tue|wed|thu|fri|sat|sun)[a-z]*, \d{1,2} [a-z]{3} \d{4} \d{2}:\d{2}(?::\d{2})?"
    r"(?: [a-z]{3,4}| [+-]\d{4})?)",
    re.IGNORECASE,
)


class AnswerCause(StrEnum):
    """Whose fault it is that a message was not taken."""

    RECIPIENT = "recipient"  # the address, the mailbox, or its owner's wish
    CONTENT = "content"  # the letter: its size, form or files
    US = "us"  # login, sender address, reputation, policy
    CAPACITY = "capacity"  # a quota or a rate of ours; it ends without help
    VENDOR = "vendor"  # the server is down or broken
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A cause, and what goes with it.

    `wait`: seconds after which a capacity is expected back; 0: the answer does not say. `alone`: it concerns this
    message alone, although its cause would concern others, as with greylisting.
    """

    cause: AnswerCause
    wait: float = 0.0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class ReplyRule:
    """Conditions that must all hold. `enhanced` and `code` match whole values; `text` is searched for."""

    judgement: Judgement
    code: re.Pattern[str] | None
    enhanced: re.Pattern[str] | None
    text: re.Pattern[str] | None
    unless: re.Pattern[str] | None

    def match_reply(self, code: str, enhanced: str, text: str) -> Judgement | None:
        fits = (
            (self.code is None or self.code.fullmatch(code) is not None)
            and (self.enhanced is None or self.enhanced.fullmatch(enhanced) is not None)
            and (self.text is None or self.text.search(text) is not None)
            and (self.unless is None or self.unless.search(text) is None)
        )
        return self.judgement if fits else None


@dataclass(frozen=True, slots=True)
class SubjectRule:
    """Judges by the subject of the sentence, if it names one. `alone`: without regard to its state."""

    alone: bool = False

    def match_reply(self, code: str, enhanced: str, text: str) -> Judgement | None:
        is_service = not is_of_server(code, enhanced, text)
        cause = read_subject_alone(text) if self.alone else read_subject(text, is_service=is_service)
        if self.alone and cause == AnswerCause.CONTENT and not is_service:
            return None  # a server says "words" of its own
        return Judgement(AnswerCause(cause)) if cause else None


def judge_reply(
    code: int | None,
    text: str,
    enhanced: str = "",
    *,
    is_early: bool | None = None,
    sender: str = "",
    recipient: str = "",
) -> Judgement:
    """Judge a refusal or deferral of a mail server, or the words of a bounce.

    `code`: the basic code, if known. `enhanced`: the code of RFC 3463; if "", the first one in the text counts.
    `is_early`: True if the server does not know the recipient yet, so the answer is not about the recipient; False if
    it answers RCPT; None if neither is known. `sender`, `recipient`: the addresses of the envelope, or "": an answer
    that quotes the sender's alone speaks of the sender. Other addresses and links in the text are not read. Known names
    of vendors' codes decide before anything else, then the reply of another server that the text quotes, then the whole
    text.
    """
    said = text[:TEXT_MAX]
    if sender and "@" in said:
        said = name_sender(said, sender, recipient)
    return _judge_said(code, _ADDRESS.sub(_MARK, said) if "@" in said else said, enhanced, is_early)


def name_sender(text: str, sender: str, recipient: str) -> str:
    """Return the text with the sender's address as words, if it quotes that address and not the recipient's."""
    quoted = {address.casefold() for address in _ADDRESS.findall(text)}
    if sender.casefold() not in quoted or recipient.casefold() in quoted:
        return text
    return re.sub(re.escape(sender), "sender address", text, flags=re.IGNORECASE)


@lru_cache(maxsize=512)  # a server says the same of many recipients, but for their addresses
def _judge_said(code: int | None, text: str, enhanced: str, is_early: bool | None) -> Judgement:
    if listed := find_linked(text):
        return Judgement(AnswerCause(listed))
    named, name = _find_name(text)
    if named and named != AnswerCause.US:
        return Judgement(named)
    reduced = _reduce_text(text.replace(name, " ") if name else text, is_server=bool(code or enhanced))
    judged = _judge_reduced(code, reduced, enhanced, is_early)
    # A name that blames us in general is overruled by words about a rate or quota, because those end without help.
    return Judgement(named) if named and judged.cause != AnswerCause.CAPACITY else judged


def _reduce_text(text: str, *, is_server: bool) -> str:
    """Return a text without addresses, and a receipt as its state. An address that a server speaks of becomes words."""
    if receipt := _RECEIPT.search(text):
        return f"receipt state {receipt[1].upper()}"
    return (_NAMED.sub(r"\1\2named address ", text) if is_server else text).replace(_MARK, "")


def _judge_reduced(code: int | None, text: str, enhanced: str, is_early: bool | None) -> Judgement:
    said = _PARAMETER.sub(_name_field, _PATH.sub(_name_path, _WEB.sub(_keep_list, text))).replace("_", " ")
    said = said if _WORD.search(said) else text  # a block list may give its link alone
    basic = str(code) if code else _find_basic(text)
    if is_early is None and _EARLY.search(said):
        is_early = True
    is_after_rcpt = is_early is False or _AFTER_RCPT.search(said) is not None
    said = _ADDRESSED.sub(r"\1mailbox", _FIELD.sub(r"; field \1 ", _NOISE.sub(" ", said)))
    judged = _judge_quoted(basic, enhanced, said) or _judge_text(basic, enhanced or _find_enhanced(text), said)
    if judged.cause == AnswerCause.RECIPIENT and not is_after_rcpt and _names_no_receiver(said, enhanced):
        return Judgement(AnswerCause.US)
    if judged.cause == AnswerCause.RECIPIENT and (ours := _find_ours(said, enhanced or _find_enhanced(text))):
        return Judgement(ours)
    if is_early and judged.cause in (AnswerCause.RECIPIENT, AnswerCause.UNKNOWN):
        return Judgement({"4": AnswerCause.VENDOR, "5": AnswerCause.US}.get(basic[:1], AnswerCause.UNKNOWN))
    return judged


def _names_no_receiver(said: str, enhanced: str) -> bool:
    """Return True if a domain does not exist and no word calls it the recipient's."""
    return _NO_DOMAIN.search(said) is not None and _OF_RECEIVER.search(f"{enhanced} {said}") is None


def _find_ours(said: str, enhanced: str) -> AnswerCause | None:
    """Return the cause if an answer that blames a recipient has words about us or our rate, else None."""
    # A list of our account names recipients, too.
    is_theirs = _NO_RECIPIENT.fullmatch(enhanced) or "suppress" in said.lower()
    found = None if is_theirs else _OURS.search(said)
    if not found or (found["rate"] and _RECEIVES.search(said)):
        return None
    return AnswerCause.CAPACITY if found["rate"] else AnswerCause.US


def _judge_quoted(code: str, enhanced: str, said: str) -> Judgement | None:
    """Judge the reply that another server gave, if the text quotes one and its cause is clear."""
    quoted = _QUOTED.search(said)
    if not quoted:
        return None
    reply = _BLANK_LINE.split(said[quoted.end() :], maxsplit=1)[0]
    judged = _judge_text(quoted[1] or code, _find_enhanced(reply) or enhanced, reply)
    if judged.cause == AnswerCause.RECIPIENT and _OF_SENDER.search(said[: quoted.start()]):
        return None
    return judged if judged.cause != AnswerCause.UNKNOWN or _EARLY.search(said) else None


def _name_field(parameter: re.Match[str]) -> str:
    return f" field {parameter[1] or parameter[2] or parameter[3]} "


def _name_path(path: re.Match[str]) -> str:
    return "".join(f" field {part} " for part in _PART.findall(path[1]))


def _find_basic(text: str) -> str:
    """Return the code of a refusal with which a text begins, or ""."""
    found = _REFUSED.match(text)
    return found[1] if found else ""


def _find_enhanced(text: str) -> str:
    found = _ENHANCED.search(text)
    return found[0] if found else ""


def _keep_list(link: re.Match[str]) -> str:
    """Return the name of the block list that a link leads to, or ""."""
    found = _LISTS.search(link[0])
    return found[0] if found else ""


def is_of_server(code: str, enhanced: str, text: str) -> bool:
    """Return True if a mail server gave the answer, not a service: its code or its first word is an SMTP code."""
    return bool(code or enhanced or _BASIC.match(text))


def split_names(text: str) -> str:
    """Return a service's text with the names of its codes as words: InvalidPhoneNumber is "Invalid Phone Number"."""
    return _HYPHENS.sub(lambda name: name[0].replace("-", " "), _NAME.sub(lambda name: _SEAM.sub(" ", name[0]), text))


def judge_code(code: str, sub_type: str = "", service: ServiceCodes | None = None) -> Judgement:
    """Judge a vendor's own code and its explanation, such as `unknown_recipient`. `service`: whose codes they are."""
    if service and (listed := service.find_cause(code, sub_type)):
        return Judgement(AnswerCause(listed))
    text = f"{code} {sub_type}"
    if _find_name(text)[0]:
        return judge_reply(None, text)
    said = re.sub(r"[_-]", " ", text)
    may_be_login = _USER.fullmatch(said) and not is_of_server("", _find_enhanced(said), said)
    return Judgement(AnswerCause.UNKNOWN) if may_be_login else judge_reply(None, said)


def _find_name(text: str) -> tuple[AnswerCause | None, str]:
    """Return the cause of the first known name of a code in a text, and the word itself; None and "" without one."""
    known = _cause_names()
    for word in _CODE.findall(text):
        for name in (word, *word.split(".")) if "." in word else (word,):
            if cause := known.get(name.casefold()):
                return cause, word
    return None, ""


def stated_wait(text: str, *, now: float) -> float | None:
    """Return the seconds until a moment that a text names as "after" or "until"; None if it names none ahead."""
    found = _AFTER.search(text)
    if not found:
        return None
    try:
        at = parsedate_to_datetime(found[1])
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    wait = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now
    return wait if wait > 0 else None


def _judge_text(code: str, enhanced: str, said: str) -> Judgement:
    text = said if is_of_server(code, enhanced, said) else split_names(said)
    judged = (one for rule in _load_rules() if (one := rule.match_reply(code, enhanced, text)))
    first = next(judged, Judgement(AnswerCause.UNKNOWN))
    if first.cause != AnswerCause.CAPACITY or first.wait:
        return first
    # The subject says whose limit it is; a later rule knows how long such a limit lasts.
    return next((one for one in judged if one.cause == first.cause and one.wait), first)


@cache
def _cause_names() -> dict[str, AnswerCause]:
    vendors = tomllib.loads(NAMES.read_text(encoding="utf-8"))["vendor"]
    return {name.casefold(): cause for one in vendors for cause in AnswerCause for name in one.get(cause, ())}


@cache
def _load_rules() -> tuple[ReplyRule | SubjectRule, ...]:
    return tuple(_make_rule(one) for one in tomllib.loads(RULES.read_text(encoding="utf-8"))["rule"])


def _make_rule(keys: dict[str, Any]) -> ReplyRule | SubjectRule:
    if "read" in keys:
        return SubjectRule(bool(keys.get("alone", False)))
    judgement = Judgement(AnswerCause(keys["cause"]), float(keys.get("wait", 0)), bool(keys.get("alone", False)))
    return ReplyRule(judgement, *(_compile_pattern(keys.get(name)) for name in ("code", "enhanced", "text", "unless")))


def _compile_pattern(found: str | list[str] | None) -> re.Pattern[str] | None:
    if found is None:
        return None
    return re.compile("|".join([found] if isinstance(found, str) else found), re.IGNORECASE)
