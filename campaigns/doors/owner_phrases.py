"""Words for campaign owners: decisions about a job, told as decisions about the owner's campaign.

Operators read of jobs, calls, parts and credentials; owners do not know these words. The forms are those of `Said`, so
stored reasons and entries of a history are told in the same way. Pages of owners are made within `reword_for_owners`.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager

from vendors.said import gettext_noop, reword_forms, show

NOTHING_LEFT = gettext_noop("nothing is left to send again: %(sums)s")
FORMS: Mapping[str, str] = {
    "%(decision)s by %(person)s": gettext_noop("%(person)s: %(decision)s"),  # of vendors/history.py
    "job %(job)s stopped: no new call starts": gettext_noop("stopped: nothing more is sent"),
    "job %(job)s and 1 child job stopped: no new call starts": gettext_noop("stopped: nothing more is sent"),
    "job %(job)s and %(count)s child jobs stopped: no new call starts": gettext_noop("stopped: nothing more is sent"),
    "job %(job)s is stopped already": gettext_noop("it is stopped already"),
    "job %(job)s is %(status)s: nothing is left to stop": gettext_noop("nothing is left to stop"),
    "job %(job)s sends 1 message": gettext_noop("1 message is sent"),
    "job %(job)s sends %(count)s messages": gettext_noop("%(count)s messages are sent"),
    "job %(job)s sends 1 message, and waits after its first %(first)s": gettext_noop(
        "1 message is sent, and it waits after the first %(first)s"
    ),
    "job %(job)s sends %(count)s messages, and waits after its first %(first)s": gettext_noop(
        "%(count)s messages are sent, and it waits after the first %(first)s"
    ),
    "job %(job)s is not sent again: %(why)s": gettext_noop("it is not sent again: %(why)s"),
    "job %(job)s has nothing to send again: nothing was in it": gettext_noop("nothing is left to send again"),
    "job %(job)s has nothing to send again: %(sums)s": NOTHING_LEFT,
    "job %(job)s has nothing to send again: %(sums)s; what is in doubt is decided under Needs attention, or by "
    "resolve --job %(job)s": gettext_noop("nothing is left to send again: %(sums)s; an operator decides about doubts"),
    "job %(job)s is paused already: %(why)s": gettext_noop("it is paused already: %(why)s"),
    "job %(job)s is %(status)s: nothing is left to pause": gettext_noop("nothing is left to pause"),
    "job %(job)s's campaign waits for approval, and stays paused after it until it is resumed": gettext_noop(
        "it waits for approval, and stays paused after it until somebody lets it go on"
    ),
    "job %(job)s's campaign paused: no new call starts until it is resumed": gettext_noop(
        "paused: nothing more is sent until somebody lets it go on"
    ),
    "job %(job)s's campaign paused": gettext_noop("paused"),
    "job %(job)s's campaign: %(why)s": "%(why)s",
    "job %(job)s is %(why)s": gettext_noop("it is %(why)s"),
    "job %(job)s's campaign has these limits already": gettext_noop("it has these limits already"),
    "job %(job)s is not paused": gettext_noop("it is not paused"),
    "job %(job)s is not paused, and waits after its first %(first)s": gettext_noop(
        "it is not paused, and waits after its first %(first)s"
    ),
    "job %(job)s's campaign goes on": gettext_noop("it goes on"),
    "job %(job)s's campaign goes on, and waits after its first %(first)s": gettext_noop(
        "it goes on, and waits after its first %(first)s"
    ),
    "job %(job)s is %(status)s: it was dispatched before": gettext_noop("it is being sent already"),
    "job %(job)s waits for its time to be sent": gettext_noop("it waits for its time"),
    "job %(job)s dispatched": gettext_noop("it begins now, without waiting for the night"),
    "job %(job)s is paused with its campaign: %(why)s": gettext_noop("it is paused: %(why)s"),
    "resume_job lets it go on": gettext_noop("let it go on first"),
    "job %(job)s is under way (%(status)s): stop it first, or wait until it is finished": gettext_noop(
        "it is being sent: stop it first, or wait until it has ended"
    ),
    "job %(job)s is still being finalised; try again in a moment": gettext_noop("it is ending; try again in a moment"),
    "job %(job)s is under way (%(status)s): nothing to send again yet": gettext_noop(
        "it is being sent: nothing to send again yet"
    ),
    "somebody else has just decided about job %(job)s: look again": gettext_noop(
        "somebody else has just decided about it: look again"
    ),
    "still being sent or finalised: job %(jobs)s; try again in a moment": gettext_noop(
        "it is still being sent; try again in a moment"
    ),
    "there is no job %(job)s": gettext_noop("it is gone"),
    "job %(job)s: %(count)s message in doubt settled as %(decision)s": gettext_noop(
        "%(count)s message in doubt settled as %(decision)s"
    ),
    "job %(job)s: %(count)s messages in doubt settled as %(decision)s": gettext_noop(
        "%(count)s messages in doubt settled as %(decision)s"
    ),
    "job %(job)s: %(count)s message in doubt settled as %(decision)s; "
    "stopped half-way, so they wait for a retry: job %(jobs)s": gettext_noop(
        "%(count)s message in doubt settled as %(decision)s; it waits until somebody sends the rest"
    ),
    "job %(job)s: %(count)s messages in doubt settled as %(decision)s; "
    "stopped half-way, so they wait for a retry: job %(jobs)s": gettext_noop(
        "%(count)s messages in doubt settled as %(decision)s; they wait until somebody sends the rest"
    ),
    "job %(job)s has no message in doubt": gettext_noop("it has no message in doubt"),
    # Reasons not to call a vendor (vendors/shut.py, vendors/condition).
    "credential %(name)s paused: %(why)s": gettext_noop("account %(name)s paused: %(why)s"),
    "credential %(name)s paused": gettext_noop("account %(name)s paused"),
    "credential %(name)s: a limit is 0": gettext_noop("account %(name)s: its limit is 0"),
    "credential %(name)s: held after calls without a clear answer": gettext_noop(
        "account %(name)s: held, because its vendor gave no clear answers"
    ),
    "%(failing)s; a single call tries it at %(at)s": gettext_noop("%(failing)s; the next try is at %(at)s"),
    "credential paused": gettext_noop("account paused"),
    "a limit of its credential is 0": gettext_noop("the limit of its account is 0"),
    "credential held after calls without a clear answer": gettext_noop(
        "account held, because its vendor gave no clear answers"
    ),
    "Resume this login": gettext_noop("Resume this account"),
    "the vendor has no credential": gettext_noop("the vendor has no account"),
    "held: its sponsor may not use this vendor or credential any more": gettext_noop(
        "held: its sponsor may not use this vendor or account any more"
    ),
    "no enabled mailcaster of it takes parts of a campaign": gettext_noop("it takes no campaigns"),
    "%(sponsor)s may not use %(credential)s; to allow it: %(command)s": gettext_noop(
        "%(sponsor)s may not use %(credential)s: ask whoever runs mailhub"
    ),
    "%(sponsor)s may use no credential of the route %(route)s: %(names)s": gettext_noop(
        "%(sponsor)s may use no account of the route %(route)s: %(names)s"
    ),
    "made it of draft %(draft)s; stored at %(time)s UTC, after its time, so it goes at once": gettext_noop(
        "made it of draft %(draft)s; stored after its time, so it goes at once"
    ),
}


def reword_for_owners() -> AbstractContextManager[None]:
    """Return a block in which the program's sentences are shown in a campaign owner's words."""
    return reword_forms(FORMS)


def tell_owner(text: str) -> str:
    """Return the sentence in the active language, in an owner's words; somebody's own words as they are."""
    with reword_for_owners():
        return show(text)
