"""Meaning of a vendor's answers: the table in vendors/outcomes.py, tightened by the description's rules.

A rule may say that an answer proves less than the table says. It may also blame the credential or the address where the
table would refuse the letter. A rule that claims more must name the vendor's contract.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from vendors.adapters.http_client import Response
from vendors.causes import AnswerCause, stated_wait
from vendors.causes.services import ServiceCodes
from vendors.described.positions import KeyFault
from vendors.described.schema import AnswerKeys, DescriptionKeys, LookUpKeys, Rule
from vendors.outcomes import (
    EXPLAINED_BY_CODE,
    RETRY_MAX,
    TEXT_MAX,
    WRONG_ADDRESS,
    Accepted,
    CallError,
    InDoubt,
    NotSent,
    Outcome,
    Refused,
    classify_error,
    classify_http,
    follow_cause,
    parse_retry_after,
    sane,
)
from vendors.said import Said

_STRICT = ("refused", "not sent", "throttled", "paused")  # readings of "it was not accepted", the strictest last
Steps = tuple[str | int, ...]
_TEXT_READ = 8_000  # bytes of an answer in which a time is looked for
_LONGEST_DELAY = 100_000_000.0  # seconds, three years: an earlier Unix time is a delay


def find_answer_faults(keys: DescriptionKeys) -> Iterator[KeyFault]:
    """Yield mistakes in [answer] and [lookup] that the schema cannot find."""
    answer = keys.answer
    if (answer.id is None) == (answer.id_header is None):
        yield ("answer",), Said("needs either id (the path of the vendor's id in the body) or id_header")
    if keys.request.batch > 1 and answer.id_header:
        yield ("answer", "id_header"), Said("is one for a whole batch; each letter needs an id of its own")
    if answer.retry_at and answer.retry_at.lower() == "retry-after":
        yield (
            ("answer", "retry_at"),
            Said("is for a Unix time; Retry-After has seconds or a date: write retry_after"),
        )
    for index, rule in enumerate(answer.rules):
        if rule.outcome is None and rule.cause is None:
            why = Said("needs is, what the answer proves, or cause, whose fault a refusal is")
            yield ("answer", "rules", index), why
        if rule.cause and rule.outcome not in (None, "refused"):
            why = Said('goes with is = "refused" or without is, not with %(outcome)s', outcome=str(rule.outcome))
            yield ("answer", "rules", index, "cause"), why
        if not rule.contract and (loose := [status for status in sorted(rule.status) if not _is_strict(status, rule)]):
            path = ("answer", "rules", index, "is")
            yield (
                path,
                (
                    Said(
                        "says more than http %(code)s proves, by itself %(outcome)s; "
                        'if the vendor promises it, say where: contract = "..."',
                        code=loose[0],
                        outcome=_builtin_outcome(loose[0]),
                    )
                ),
            )


def _builtin_outcome(status: int) -> str:
    """Return the outcome of a status by vendors/outcomes.py, in the words of a rule."""
    if 200 <= status < 300:
        return "accepted"
    outcome = classify_http(status, {}, b"", now=0.0)
    if isinstance(outcome, NotSent):
        return "paused" if outcome.pause else "throttled" if outcome.scope == "credential" else "not sent"
    return "refused" if isinstance(outcome, Refused) else "in doubt"


def _is_strict(status: int, rule: Rule) -> bool:
    """Return True if the rule claims no more than the table does."""
    builtin = _builtin_outcome(status)
    if rule.outcome in (None, "in doubt", builtin):
        return True
    if builtin in _STRICT and rule.outcome in _STRICT:
        return _STRICT.index(rule.outcome) > _STRICT.index(builtin)
    return False


def parse_steps(path: str) -> Steps:
    """Split a path such as `data.0.id` into keys and indexes."""
    return tuple(int(part) if part.isdigit() else part for part in path.split("."))


def value_at(node: Any, path: Steps) -> Any:
    """Return the value at the path, or None."""
    for step in path:
        if isinstance(node, dict):
            node = node.get(str(step))
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            return None
    return node


def parse_json(body: bytes) -> Any:
    """Return the answer's JSON, or None if it is not JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:  # also raised for NaN, a wrong charset and deep nesting
        return None


class _Test:
    """A compiled rule."""

    def __init__(self, rule: Rule) -> None:
        self.outcome = rule.outcome
        self.cause = AnswerCause(rule.cause) if rule.cause else AnswerCause.UNKNOWN
        self.promised = rule.contract is not None
        self.body = [(parse_steps(path), frozenset(map(_plain_scalar, values))) for path, values in rule.body.items()]

    def fits_node(self, node: Any) -> bool:
        for path, values in self.body:
            found = value_at(node, path)
            if found is None or isinstance(found, dict | list) or _plain_scalar(found) not in values:
                return False
        return True


def _plain_scalar(value: Any) -> str:
    """Return a scalar as JSON writes it, without quotes: 7, "7" and true."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


class _Read(NamedTuple):
    """An answer with its headers parsed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Meaning:
    """Judges answers. An adapter makes one and keeps it. `service`: the table of the vendor's codes, if it has one."""

    def __init__(self, keys: AnswerKeys, *, dedupe: bool, service: ServiceCodes | None = None) -> None:
        self._service = service
        self._rules: dict[int, list[_Test]] = {}
        for rule in keys.rules:
            test = _Test(rule)
            for status in rule.status:
                self._rules.setdefault(status, []).append(test)
        self._id = parse_steps(keys.id) if keys.id else ()
        self._one_key = keys.id if keys.id and len(self._id) == 1 else ""
        self._id_header = keys.id_header.lower() if keys.id_header else ""
        self._code = parse_steps(keys.code)
        self._sub_type = parse_steps(keys.sub_type)
        self._causes = {code: AnswerCause(cause) for code, cause in keys.causes.items()}
        self._batch_in = parse_steps(keys.batch_in) if keys.batch_in else ()
        self._one_id = keys.one_id
        self._retry_after = keys.retry_after.lower()
        self._retry_at = keys.retry_at.lower() if keys.retry_at else ""
        self._dedupe = dedupe

    def judge_error(self, error: CallError, now: float, letters: int = 1) -> Outcome:
        """Judge a call without a complete answer. Where a rule needs the body, the outcome is in doubt."""
        outcome = self._judge_error_status(error, now)
        if letters > 1 and error.written and error.status is not None and not isinstance(outcome, InDoubt):
            return self._judge_whole(outcome, error.status, None)
        if (self._causes or self._service) and isinstance(outcome, Refused):  # its code would say whose fault it is
            return InDoubt(error.reason, answered=True)
        return outcome

    def _judge_error_status(self, error: CallError, now: float) -> Outcome:
        status = error.status
        if error.written and status is not None and status >= 300 and (rules := self._rules.get(status)):
            if rules[0].body or rules[0].outcome == "in doubt":
                return InDoubt(error.reason, answered=True)
            return self._apply_rule(rules[0], _Read(status, error.headers, b""), None, now, error.reason)
        outcome = classify_error(error, now=now)
        wait = self._wait_asked(error.headers, b"", now) if error.written else None
        return _replace_wait(outcome, wait)

    def judge_one(self, answer: Response, now: float) -> Outcome:
        """Judge the answer to a single letter."""
        # the common case, in fewer steps
        if self._one_key and 200 <= answer.status < 300 and answer.status not in self._rules:
            node = parse_json(answer.body)
            vendor_id = sane(node.get(self._one_key)) if isinstance(node, dict) else ""
            return Accepted(vendor_id) if vendor_id else InDoubt(f"http {answer.status} without an id", answered=True)
        return self._judge_answer(answer.status, answer, parse_json(answer.body), now)

    def judge_batch(self, answer: Response, references: Sequence[str], now: float) -> list[Outcome]:
        """Judge the answer to a batch: one entry for each letter, in order, or one id for all."""
        letters = len(references)
        node = parse_json(answer.body)
        entries = value_at(node, self._batch_in)
        if self._one_id or not 200 <= answer.status < 300:
            outcome = self._judge_answer(answer.status, answer, node, now)
            if isinstance(outcome, Accepted) and self._one_id:
                return [Accepted(derive_id(outcome.vendor_id, reference)) for reference in references]
            return [self._judge_whole(outcome, answer.status, node) if letters > 1 else outcome] * letters
        if not isinstance(entries, list) or len(entries) != letters:
            return [InDoubt(f"http {answer.status} without an entry for each letter", answered=True)] * letters
        return _doubt_shared_ids([self._judge_answer(answer.status, answer, entry, now) for entry in entries])

    def _judge_whole(self, outcome: Outcome, status: int, node: Any) -> Outcome:
        """Return the outcome of each letter if the whole batch got an error.

        An error about one letter does not prove that the others were not accepted, so they are in doubt. A rule with a
        contract can prove it, but even then no letter is refused.
        """
        rule = self._find_rule(status, node)
        doubtful = _builtin_outcome(status) == "refused" or status == 402  # credit may have run out within the batch
        if isinstance(outcome, Refused):
            reason = f"http {status} for a whole batch: {outcome.code}"[:TEXT_MAX]
            outcome = NotSent(reason, scope="credential", pause=True)
        if isinstance(outcome, NotSent) and doubtful and not (rule and rule.promised):
            return InDoubt(outcome.reason, pause=True, answered=True)
        return outcome

    def _find_rule(self, status: int, node: Any) -> _Test | None:
        """Return the first rule that fits."""
        return next((rule for rule in self._rules.get(status, ()) if rule.fits_node(node)), None)

    def _judge_answer(self, status: int, answer: Response, node: Any, now: float) -> Outcome:
        if status in self._rules and (rule := self._find_rule(status, node)):
            return self._apply_rule(rule, _Read(status, answer.headers, answer.body), node, now)
        if 200 <= status < 300:
            return self._judge_accepted(status, answer.headers if self._id_header else {}, node)
        headers = answer.headers
        outcome = classify_http(status, headers, b"", now=now)
        explained = status == EXPLAINED_BY_CODE and self._listed_cause(node)
        if isinstance(outcome, Refused) or explained:
            return self._judge_refused(_Read(status, headers, answer.body), node, now)
        if status == 409 and self._dedupe:
            return self._judge_accepted(status, headers, node)
        return _replace_wait(outcome, self._wait_asked(headers, answer.body, now))

    def _judge_refused(self, answer: _Read, node: Any, now: float, cause: AnswerCause = AnswerCause.UNKNOWN) -> Outcome:
        """Return what follows from a refusal.

        `cause`: as a rule says; else as [answer.causes] has the code, else as the service's table has it.
        """
        code, sub_type = sane(value_at(node, self._code)), sane(value_at(node, self._sub_type))
        cause = self._causes.get(code, cause) if cause == AnswerCause.UNKNOWN else cause
        if cause == AnswerCause.UNKNOWN and (listed := self._listed_cause(node)):
            cause = AnswerCause(listed)
        refused = Refused(code or f"http_{answer.status}", sub_type, cause)
        said = ": ".join(part for part in (f"http {answer.status}", code, sub_type) if part)
        return follow_cause(refused, self._wait_asked(answer.headers, answer.body, now), said)

    def _listed_cause(self, node: Any) -> str:
        """Return the cause of the answer's code by the service's table; "" if it has none."""
        if self._service is None:
            return ""
        return self._service.find_cause(*(sane(value_at(node, path)) for path in (self._code, self._sub_type)))

    def _judge_accepted(self, status: int, headers: Mapping[str, str], node: Any) -> Outcome:
        if self._id_header:
            found: Any = headers.get(self._id_header)
        else:
            found = value_at(node, self._id)
        vendor_id = sane(found)
        return Accepted(vendor_id) if vendor_id else InDoubt(f"http {status} without an id", answered=True)

    def _apply_rule(self, rule: _Test, answer: _Read, node: Any, now: float, reason: str = "") -> Outcome:
        status, headers = answer.status, answer.headers
        code, sub_type = sane(value_at(node, self._code)), sane(value_at(node, self._sub_type))
        said = f"http {status}" + "".join(f": {part}" for part in (code, sub_type, reason) if part)
        said = said[:TEXT_MAX]
        match rule.outcome or _builtin_outcome(status):
            case "accepted":
                return self._judge_accepted(status, headers, node)
            case "refused":
                return self._judge_refused(answer, node, now, rule.cause)
            case "not sent":
                return NotSent(said)
            case "throttled":
                wait = self._wait_asked(headers, answer.body, now)
                return NotSent(said, parse_retry_after(None, now=now) if wait is None else wait, "credential")
            case "paused":
                return NotSent(said, scope="credential", pause=True)
            case _:
                return InDoubt(said, answered=True)

    def _wait_asked(self, headers: Mapping[str, str], body: bytes, now: float) -> float | None:
        """Return the seconds the vendor asks to wait, by a header or the text; None if it does not say.

        `retry_at` is a Unix time. Some vendors write seconds there, and no time as early as a delay is ahead.
        """
        if self._retry_after in headers:
            return parse_retry_after(headers[self._retry_after], now=now)
        try:
            at = float(headers[self._retry_at])
        except (KeyError, ValueError):
            stated = stated_wait(body[:_TEXT_READ].decode("utf-8", "replace"), now=now)
            return None if stated is None else min(stated, RETRY_MAX)
        wait = at if at <= _LONGEST_DELAY else at - now
        return min(max(wait, 1.0), RETRY_MAX) if math.isfinite(wait) else None


def derive_id(vendor_id: str, reference: str) -> str:
    """Build a vendor id for one letter of a call with a single id, since each letter needs evidence of its own."""
    return f"{vendor_id.strip('<>')[: TEXT_MAX - 1 - len(reference)]} {reference}"


def _replace_wait(outcome: Outcome, wait: float | None) -> Outcome:
    """Replace the outcome's wait by the vendor's own, if the outcome has one."""
    if wait is None or not isinstance(outcome, NotSent) or outcome.retry_after is None or outcome.pause:
        return outcome
    return NotSent(outcome.reason, wait, outcome.scope)


def _doubt_shared_ids(outcomes: list[Outcome]) -> list[Outcome]:
    """Put letters that share an id in doubt; such an id proves none of them."""
    ids = [outcome.vendor_id for outcome in outcomes if isinstance(outcome, Accepted)]
    if len(set(ids)) == len(ids):
        return outcomes
    several = {vendor_id for vendor_id, letters in Counter(ids).items() if letters > 1}
    doubt = InDoubt("several letters have the same id", answered=True)
    return [doubt if isinstance(one, Accepted) and one.vendor_id in several else one for one in outcomes]


def looked_up(lookup: LookUpKeys, answer: Response, reference: str) -> Accepted | NotSent | None:
    """Judge the answer to a look-up. Only a letter with exactly our reference counts."""
    if answer.status == 404 and lookup.entries is None:
        # a 404 without JSON may come from a proxy
        if lookup.proves == "both" and not isinstance(parse_json(answer.body), dict):
            return NotSent("http 404 without JSON")
        return None
    if answer.status != 200:
        outcome = classify_http(answer.status, answer.headers, b"", now=time.time())
        if isinstance(outcome, NotSent) and answer.status not in WRONG_ADDRESS:
            return outcome
        return NotSent(f"http {answer.status}")
    entries = _found_in(parse_json(answer.body), lookup.entries)
    if entries is None:
        return NotSent("the answer to the look-up has not the form of the description")
    for entry in entries:
        if value_at(entry, parse_steps(lookup.reference)) == reference:
            vendor_id = sane(value_at(entry, parse_steps(lookup.id)))
            return Accepted(vendor_id) if vendor_id else NotSent("http 200 without an id")
    if entries:
        return NotSent("the look-up found other letters than the one asked for")
    return None


def _found_in(node: Any, entries: str | None) -> Sequence[Any] | None:
    """Return the entries found by a look-up; None if the answer does not say."""
    if entries is None:
        return [node] if isinstance(node, dict) else None
    found = value_at(node, parse_steps(entries))
    return found if isinstance(found, list) else None
