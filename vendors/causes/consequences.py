"""The consequences of an answer: one table of cause and proof, the source of docs/explanation/causes.md."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from vendors.causes import AnswerCause


class AnswerProof(StrEnum):
    """What an answer proves."""

    REFUSED = "not taken, for good"
    DEFERRED = "not taken this time"
    DELAYED = "taken, and not delivered yet"
    REPORTED = "taken, and given up later"
    OPEN = "nothing: it may have been taken"


class MessageEnd(StrEnum):
    """What becomes of the message."""

    FAILED = "Failed"
    PUT_OFF = "put off"
    LATER = "called when the credential is open"
    DOUBTED = "in doubt"
    UNCHANGED = "stays *Sent*"
    SOFT = "soft bounce"
    HARD = "hard or soft bounce"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Consequence:
    """What follows. `waits`, `pauses`: the credential. `runs`: it counts for a row of equal refusals.

    `brakes`: several in a row stop the claims. `by_receiver`: if a mail server speaks for a receiving domain, only that
    domain waits or pauses. `suppresses`: the channels on which it may suppress the recipient.
    """

    message: MessageEnd
    waits: bool = False
    pauses: bool = False
    runs: bool = False
    brakes: bool = False
    by_receiver: bool = False
    suppresses: frozenset[str] = frozenset()


_C, _P, _M = AnswerCause, AnswerProof, MessageEnd
_ADDRESSED = frozenset({"email", "sms"})
FOLLOWS: dict[tuple[AnswerCause, AnswerProof], Consequence] = {
    (_C.RECIPIENT, _P.REFUSED): Consequence(_M.FAILED, suppresses=_ADDRESSED),
    (_C.CONTENT, _P.REFUSED): Consequence(_M.FAILED, runs=True),
    (_C.US, _P.REFUSED): Consequence(_M.LATER, pauses=True, by_receiver=True),
    (_C.CAPACITY, _P.REFUSED): Consequence(_M.LATER, waits=True, by_receiver=True),
    (_C.VENDOR, _P.REFUSED): Consequence(_M.FAILED, runs=True),
    (_C.UNKNOWN, _P.REFUSED): Consequence(_M.FAILED, runs=True),
    **{(cause, _P.DEFERRED): Consequence(_M.PUT_OFF) for cause in AnswerCause},
    (_C.US, _P.DEFERRED): Consequence(_M.PUT_OFF, by_receiver=True),
    (_C.CAPACITY, _P.DEFERRED): Consequence(_M.LATER, waits=True, by_receiver=True),
    **{(cause, _P.DELAYED): Consequence(_M.UNCHANGED) for cause in AnswerCause},
    (_C.US, _P.DELAYED): Consequence(_M.UNCHANGED, by_receiver=True),
    (_C.CAPACITY, _P.DELAYED): Consequence(_M.UNCHANGED, by_receiver=True),
    (_C.RECIPIENT, _P.REPORTED): Consequence(_M.HARD, suppresses=_ADDRESSED),
    (_C.CONTENT, _P.REPORTED): Consequence(_M.BLOCKED),
    (_C.US, _P.REPORTED): Consequence(_M.BLOCKED, by_receiver=True),
    (_C.CAPACITY, _P.REPORTED): Consequence(_M.BLOCKED, by_receiver=True),
    (_C.VENDOR, _P.REPORTED): Consequence(_M.SOFT, suppresses=_ADDRESSED),
    (_C.UNKNOWN, _P.REPORTED): Consequence(_M.SOFT, suppresses=_ADDRESSED),
    **{(cause, _P.OPEN): Consequence(_M.DOUBTED, brakes=True) for cause in AnswerCause},
}


def follows_from(cause: AnswerCause, proof: AnswerProof, *, alone: bool = False) -> Consequence:
    """Return what follows. `alone`: the answer concerns one message alone, as greylisting does."""
    return Consequence(_M.PUT_OFF) if alone and proof == _P.DEFERRED else FOLLOWS[cause, proof]


def described_rows() -> Iterator[list[str]]:
    """Yield the rows of the documents' table: proof, cause, message, credential, suppression."""
    for proof in AnswerProof:
        rows = [(cause, FOLLOWS[cause, proof]) for cause in AnswerCause]
        for consequence in dict.fromkeys(one for _, one in rows):
            causes = [cause.value for cause, one in rows if one == consequence]
            shown = "any" if len(causes) == len(rows) else ", ".join(causes)
            yield [
                proof.value,
                shown,
                consequence.message.value,
                _credential_cell(consequence),
                _list_cell(consequence),
            ]


def _credential_cell(consequence: Consequence) -> str:
    whole = _whole_cell(consequence)
    if not consequence.by_receiver:
        return whole
    return f"{whole}; or a receiving domain alone" if whole else "a receiving domain waits, if it is a mail server's"


def _whole_cell(consequence: Consequence) -> str:
    if consequence.pauses:
        return "paused, until somebody resumes it"
    if consequence.waits:
        return "waits, as stated or as usual"
    if consequence.brakes:
        return "claims stop after several in a row"
    return "it or campaigns pause after `EQUAL_REFUSALS` equal in a row, which are put back" if consequence.runs else ""


def _list_cell(consequence: Consequence) -> str:
    return f"possible: {', '.join(sorted(consequence.suppresses))}" if consequence.suppresses else ""
