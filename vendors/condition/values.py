"""`Condition`: whether a vendor or a credential works, as a value for every door."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from vendors.said import Said, gettext_noop


class ConditionKind(StrEnum):
    """What calls can expect now."""

    WORKS = "works"  # the last answer was good
    UNTRIED = "untried"  # nothing was called at the present address and account
    FAILING = "failing"  # no good answer since `since`
    SILENT = "silent"  # windows were rebuilt: no call before `until`
    SHUT = "shut"  # nothing is called: for `reason`, before `until` or until `mender` acts


class Mender(StrEnum):
    """Who can make calls possible again."""

    NOBODY = "nobody"  # nobody: it ends without help
    VENDOR = "vendor"  # the vendor; mailhub notices without help
    OPERATOR = "operator"  # the people who run the installation
    OWNER = "owner"  # the users of the sponsor who owns the vendor


@dataclass(frozen=True, slots=True)
class Mending:
    """A remedy for the people who may apply it. `command`: after manage.py; `button`: the label of its button."""

    mender: Mender
    command: str = ""
    button: str = ""


NOTHING_TO_MEND = Mending(Mender.NOBODY)


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a vendor, a credential, or a receiving domain at a credential.

    `since`: begin of this state, where it is known. `tries`: bad answers since `since`; `answer`: the last of them, in
    the vendor's words and without its recipient; `cause`: its AnswerCause, or "". `until`: time from which calls may
    start again without help; None: unknown. `reason`: explains the shut state; `brief`: the same for readers who may
    not know it (vendors.ownership.is_disclosed). `is_braked`: several doubts have stopped its calls, and `until` is the
    time of the next probe; `is_held`: an operator allows no probe. `good_at`: the last good answer.
    """

    kind: ConditionKind
    since: datetime | None = None
    tries: int = 0
    answer: str = ""
    cause: str = ""
    until: datetime | None = None
    reason: str = ""
    brief: str = ""
    mending: Mending = NOTHING_TO_MEND
    is_braked: bool = False
    is_held: bool = False
    good_at: datetime | None = None

    @property
    def works(self) -> bool:
        """True after a good answer, if calls may start now."""
        return self.kind == ConditionKind.WORKS

    @property
    def has_end(self) -> bool:
        """True if a forecast may name an end: it works, or was never tried, or waits for a known time."""
        return self.kind in (ConditionKind.WORKS, ConditionKind.UNTRIED, ConditionKind.SILENT) or (
            self.kind == ConditionKind.SHUT and self.until is not None
        )


WORKS = gettext_noop("works")
UNTRIED = gettext_noop("not called yet")
FAILING = gettext_noop("failing since %(since)s: %(tries)s tries, last answer: %(answer)s")
FAILING_ONCE = gettext_noop("failing since %(since)s: one try, last answer: %(answer)s")
FAILING_UNTOLD = gettext_noop("failing since %(since)s")
BRAKED = gettext_noop("%(failing)s; a single call tries it at %(at)s")
SILENT = gettext_noop("silent until %(at)s, because its windows were rebuilt and calls may still be open")
SILENT_UNTIL = gettext_noop("silent until %(at)s")
SHUT_UNTIL = gettext_noop("%(why)s, until %(at)s")
ASKED_TO_WAIT = gettext_noop("the vendor asked to wait")


def describe_condition(condition: Condition, clock: Callable[[datetime], str], *, is_disclosed: bool = True) -> Said:
    """Return the condition as a sentence. `clock` writes a time; `is_disclosed`: the reader may know the reason."""
    match condition.kind:
        case ConditionKind.WORKS:
            return Said(WORKS)
        case ConditionKind.UNTRIED:
            return Said(UNTRIED)
        case ConditionKind.SILENT if condition.until:
            return Said(SILENT, at=clock(condition.until))
        case ConditionKind.FAILING:
            return _describe_failing(condition, clock, is_disclosed)
    why = condition.reason if is_disclosed else condition.brief
    if condition.until:
        return Said(SHUT_UNTIL, why=why, at=clock(condition.until))
    return why if isinstance(why, Said) else Said("%(why)s", why=why)


def name_condition(condition: Condition, clock: Callable[[datetime], str]) -> Said:
    """Return the condition in a few words without its reason, for a line of a list. `clock` writes a time."""
    if condition.kind is ConditionKind.SILENT and condition.until:
        return Said(SILENT_UNTIL, at=clock(condition.until))
    if condition.kind is ConditionKind.FAILING:
        return _describe_failing(replace(condition, is_braked=False), clock, is_disclosed=False)
    return describe_condition(condition, clock, is_disclosed=False)


def _describe_failing(condition: Condition, clock: Callable[[datetime], str], is_disclosed: bool) -> Said:
    since = clock(condition.since) if condition.since else "?"
    if not (condition.answer and is_disclosed):
        said = Said(FAILING_UNTOLD, since=since)
    elif condition.tries == 1:
        said = Said(FAILING_ONCE, since=since, answer=condition.answer)
    else:
        said = Said(FAILING, since=since, tries=condition.tries, answer=condition.answer)
    return Said(BRAKED, failing=said, at=clock(condition.until)) if condition.is_braked and condition.until else said
