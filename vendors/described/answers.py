"""What a vendor's answer means: the table of vendors/outcomes.py, made stricter by a description's rules.

A rule may say that an answer proves less than the table says, and that a login or an address is to blame where the
table would refuse a letter. To prove more it has to name the vendor's contract.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from vendors.adapters.http_client import Response
from vendors.described.positions import KeyFault
from vendors.described.schema import AnswerKeys, DescriptionKeys, LookUpKeys, Rule
from vendors.outcomes import (
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
    parse_retry_after,
    sane,
)

_STRICT = ("refused", "not sent", "throttled", "paused")  # what "it was not taken" can mean, the strictest last
Steps = tuple[str | int, ...]


def faults(keys: DescriptionKeys) -> Iterator[KeyFault]:
    """What is wrong with [answer] and [lookup], beside their shape."""
    answer = keys.answer
    if (answer.id is None) == (answer.id_header is None):
        yield ("answer",), "needs id, the path of the vendor's id in the body, or id_header: one of them"
    if keys.request.batch > 1 and answer.id_header:
        yield ("answer", "id_header"), "is one for a whole batch; each letter needs an id of its own"
    for index, rule in enumerate(answer.rules):
        if not rule.contract and (loose := [status for status in sorted(rule.status) if not _is_strict(status, rule)]):
            path = ("answer", "rules", index, "is")
            yield (
                path,
                (
                    f"says more than http {loose[0]} proves, by itself {_builtin(loose[0])}; "
                    'if the vendor promises it, say where: contract = "..."'
                ),
            )


def _builtin(status: int) -> str:
    """The outcome of a status by vendors/outcomes.py, in the words of a rule."""
    if 200 <= status < 300:
        return "accepted"
    outcome = classify_http(status, {}, b"", now=0.0)
    if isinstance(outcome, NotSent):
        return "paused" if outcome.pause else "throttled" if outcome.scope == "credential" else "not sent"
    return "refused" if isinstance(outcome, Refused) else "in doubt"


def _is_strict(status: int, rule: Rule) -> bool:
    """Whether the rule claims no more than the table does."""
    builtin = _builtin(status)
    if rule.outcome in ("in doubt", builtin):
        return True
    if builtin in _STRICT and rule.outcome in _STRICT:
        return _STRICT.index(rule.outcome) > _STRICT.index(builtin)
    return False


def steps(path: str) -> Steps:
    """`data.0.id` as keys and indexes."""
    return tuple(int(part) if part.isdigit() else part for part in path.split("."))


def value_at(node: Any, path: Steps) -> Any:
    """What is there, or None."""
    for step in path:
        if isinstance(node, dict):
            node = node.get(str(step))
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            return None
    return node


def parsed(body: bytes) -> Any:
    """The answer's JSON, or None."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:  # also NaN, a wrong charset and deep nesting
        return None


class _Test:
    """A rule, ready to be asked."""

    def __init__(self, rule: Rule) -> None:
        self.outcome = rule.outcome
        self.promised = rule.contract is not None
        self.body = [(steps(path), frozenset(map(_plain, values))) for path, values in rule.body.items()]

    def fits(self, node: Any) -> bool:
        for path, values in self.body:
            found = value_at(node, path)
            if found is None or isinstance(found, dict | list) or _plain(found) not in values:
                return False
        return True


def _plain(value: Any) -> str:
    """7, "7" and true as JSON writes them, without quotes."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


class Meaning:
    """Judges answers; made once for an adapter."""

    def __init__(self, keys: AnswerKeys, *, dedupe: bool) -> None:
        self._rules: dict[int, list[_Test]] = {}
        for rule in keys.rules:
            test = _Test(rule)
            for status in rule.status:
                self._rules.setdefault(status, []).append(test)
        self._id = steps(keys.id) if keys.id else ()
        self._one_key = keys.id if keys.id and len(self._id) == 1 else ""
        self._id_header = keys.id_header.lower() if keys.id_header else ""
        self._code = steps(keys.code)
        self._sub_type = steps(keys.sub_type)
        self._batch_in = steps(keys.batch_in) if keys.batch_in else ()
        self._one_id = keys.one_id
        self._retry_after = keys.retry_after.lower()
        self._retry_at = keys.retry_at.lower() if keys.retry_at else ""
        self._dedupe = dedupe

    def of_error(self, error: CallError, now: float, letters: int = 1) -> Outcome:
        """Of a call without a complete answer: rules that need its body cannot be asked, so they make it a doubt."""
        outcome = self._of_error(error, now)
        if letters > 1 and error.written and error.status is not None and not isinstance(outcome, InDoubt):
            return self._of_whole(outcome, error.status, None)
        return outcome

    def _of_error(self, error: CallError, now: float) -> Outcome:
        status = error.status
        if error.written and status is not None and status >= 300 and (rules := self._rules.get(status)):
            if rules[0].body or rules[0].outcome == "in doubt":
                return InDoubt(error.reason, answered=True)
            return self._by_rule(rules[0], status, error.headers, None, now, error.reason)
        outcome = classify_error(error, now=now)
        wait = self._wait(error.headers, now) if error.written else None
        return _with_wait(outcome, wait)

    def of_one(self, answer: Response, now: float) -> Outcome:
        """Of the answer to one letter."""
        if self._one_key and 200 <= answer.status < 300 and answer.status not in self._rules:  # in fewer steps
            node = parsed(answer.body)
            vendor_id = sane(node.get(self._one_key)) if isinstance(node, dict) else ""
            return Accepted(vendor_id) if vendor_id else InDoubt(f"http {answer.status} without an id", answered=True)
        return self._judge(answer.status, answer, parsed(answer.body), now)

    def of_batch(self, answer: Response, references: Sequence[str], now: float) -> list[Outcome]:
        """Of the answer to several, with an entry for each, in their order, or with one id for all."""
        letters = len(references)
        node = parsed(answer.body)
        entries = value_at(node, self._batch_in)
        if self._one_id or not 200 <= answer.status < 300:
            outcome = self._judge(answer.status, answer, node, now)
            if isinstance(outcome, Accepted) and self._one_id:
                return [Accepted(of_one_id(outcome.vendor_id, reference)) for reference in references]
            return [self._of_whole(outcome, answer.status, node) if letters > 1 else outcome] * letters
        if not isinstance(entries, list) or len(entries) != letters:
            return [InDoubt(f"http {answer.status} without an entry for each letter", answered=True)] * letters
        return _each_by_its_id([self._judge(answer.status, answer, entry, now) for entry in entries])

    def _of_whole(self, outcome: Outcome, status: int, node: Any) -> Outcome:
        """Of an error for a whole batch: what says that a letter is wrong does not say that no other one was taken.

        With a rule's contract it does, and still refuses none.
        """
        rule = self._rule(status, node)
        doubtful = _builtin(status) == "refused" or status == 402  # the credit may have ended within the batch
        if isinstance(outcome, Refused):
            reason = f"http {status} for a whole batch: {outcome.code}"[:TEXT_MAX]
            outcome = NotSent(reason, scope="credential", pause=True)
        if isinstance(outcome, NotSent) and doubtful and not (rule and rule.promised):
            return InDoubt(outcome.reason, pause=True, answered=True)
        return outcome

    def _rule(self, status: int, node: Any) -> _Test | None:
        """The first that fits."""
        return next((rule for rule in self._rules.get(status, ()) if rule.fits(node)), None)

    def _judge(self, status: int, answer: Response, node: Any, now: float) -> Outcome:
        if status in self._rules and (rule := self._rule(status, node)):
            return self._by_rule(rule, status, answer.headers, node, now)
        if 200 <= status < 300:
            return self._accepted(status, answer.headers if self._id_header else {}, node)
        headers = answer.headers
        outcome = classify_http(status, headers, b"", now=now)
        if isinstance(outcome, Refused):
            return Refused(sane(value_at(node, self._code)) or outcome.code, sane(value_at(node, self._sub_type)))
        if status == 409 and self._dedupe:
            return self._accepted(status, headers, node)
        return _with_wait(outcome, self._wait(headers, now))

    def _accepted(self, status: int, headers: Mapping[str, str], node: Any) -> Outcome:
        if self._id_header:
            found: Any = headers.get(self._id_header)
        else:
            found = value_at(node, self._id)
        vendor_id = sane(found)
        return Accepted(vendor_id) if vendor_id else InDoubt(f"http {status} without an id", answered=True)

    def _by_rule(
        self, rule: _Test, status: int, headers: Mapping[str, str], node: Any, now: float, reason: str = ""
    ) -> Outcome:
        code, sub_type = sane(value_at(node, self._code)), sane(value_at(node, self._sub_type))
        said = f"http {status}" + "".join(f": {part}" for part in (code, sub_type, reason) if part)
        said = said[:TEXT_MAX]
        match rule.outcome:
            case "accepted":
                return self._accepted(status, headers, node)
            case "refused":
                return Refused(code or f"http_{status}", sub_type)
            case "not sent":
                return NotSent(said)
            case "throttled":
                wait = self._wait(headers, now)
                return NotSent(said, parse_retry_after(None, now=now) if wait is None else wait, "credential")
            case "paused":
                return NotSent(said, scope="credential", pause=True)
            case _:
                return InDoubt(said, answered=True)

    def _wait(self, headers: Mapping[str, str], now: float) -> float | None:
        """Seconds that the vendor asks to wait, by a span or by a Unix time; None: it says nothing."""
        if self._retry_after in headers:
            return parse_retry_after(headers[self._retry_after], now=now)
        try:
            wait = float(headers[self._retry_at]) - now
        except (KeyError, ValueError):
            return None
        return min(max(wait, 1.0), RETRY_MAX) if math.isfinite(wait) else None


def of_one_id(vendor_id: str, reference: str) -> str:
    """The name of a letter whose call has one id for all its letters: evidence is of one letter each."""
    return f"{vendor_id.strip('<>')[: TEXT_MAX - 1 - len(reference)]} {reference}"


def _with_wait(outcome: Outcome, wait: float | None) -> Outcome:
    """The outcome with the vendor's own wait, if it is one that waits."""
    if wait is None or not isinstance(outcome, NotSent) or outcome.retry_after is None or outcome.pause:
        return outcome
    return NotSent(outcome.reason, wait, outcome.scope)


def _each_by_its_id(outcomes: list[Outcome]) -> list[Outcome]:
    """An id that several letters have proves none of them."""
    ids = [outcome.vendor_id for outcome in outcomes if isinstance(outcome, Accepted)]
    if len(set(ids)) == len(ids):
        return outcomes
    several = {vendor_id for vendor_id, letters in Counter(ids).items() if letters > 1}
    doubt = InDoubt("several letters have the same id", answered=True)
    return [doubt if isinstance(one, Accepted) and one.vendor_id in several else one for one in outcomes]


def looked_up(lookup: LookUpKeys, answer: Response, reference: str) -> Accepted | NotSent | None:
    """What the answer to a look-up proves: only a letter with our very reference is ours."""
    if answer.status == 404 and lookup.entries is None:
        if lookup.proves == "both" and not isinstance(parsed(answer.body), dict):  # of whoever stands in between
            return NotSent("http 404 without JSON")
        return None
    if answer.status != 200:
        outcome = classify_http(answer.status, answer.headers, b"", now=time.time())
        if isinstance(outcome, NotSent) and answer.status not in WRONG_ADDRESS:
            return outcome
        return NotSent(f"http {answer.status}")
    entries = _found_in(parsed(answer.body), lookup.entries)
    if entries is None:
        return NotSent("the answer to the look-up has not the form of the description")
    for entry in entries:
        if value_at(entry, steps(lookup.reference)) == reference:
            vendor_id = sane(value_at(entry, steps(lookup.id)))
            return Accepted(vendor_id) if vendor_id else NotSent("http 200 without an id")
    if entries:
        return NotSent("the look-up found other letters than the one asked for")
    return None


def _found_in(node: Any, entries: str | None) -> Sequence[Any] | None:
    """The entries that a look-up found; None: the answer does not say."""
    if entries is None:
        return [node] if isinstance(node, dict) else None
    found = value_at(node, steps(entries))
    return found if isinstance(found, list) else None
