"""Translations of texts that code stores or compares in English.

Each text also stands where it is made. A text with values in it is recognised by its form. Unknown texts stay English.
"""

import re
from functools import cache

from django.conf import settings
from django.utils import formats
from django.utils.translation import get_language, gettext

from campaigns.stored_histories import BREACHES
from vendors.said import Said, gettext_noop, show

FORMS = (
    gettext_noop(
        "these rows were written on another disk or machine: they were copied, restored or moved; %(waiting)s"
    ),
    gettext_noop("nothing has run here for %(span)s, and mail fell due or was under way: %(waiting)s"),
    *(one for one in BREACHES if "%(" in one),
)

FIXED = (
    gettext_noop("Any"),
    gettext_noop("this installation was copied, moved or away: a person has to run manage.py recover_store"),
    gettext_noop("Rendered"),
    gettext_noop("Ready"),
    gettext_noop("Enqueued"),
    gettext_noop("Recovering"),
    gettext_noop("Logged"),
    gettext_noop("Parent queued"),
    gettext_noop("Parent assigning"),
    gettext_noop("Parent assigned"),
    gettext_noop("Parent finished"),
    gettext_noop("Parent stopped"),
    gettext_noop("E-mail"),
    gettext_noop("Print"),
    gettext_noop("SMS"),
    gettext_noop("Hard bounce"),
    gettext_noop("Soft bounce"),
    gettext_noop("Blocked"),
    gettext_noop("Complaint"),
    gettext_noop("Opened"),
    gettext_noop("Clicked"),
    gettext_noop("By hand"),
    gettext_noop("STOP"),
    gettext_noop("START"),
    gettext_noop("HELP"),
    gettext_noop("API key"),
    gettext_noop("Shell"),
    gettext_noop("Live"),
    gettext_noop("Test: to sandbox vendors only"),
    gettext_noop("Send"),
    gettext_noop("Read"),
    gettext_noop("Ops"),
    gettext_noop("send again"),
    gettext_noop("the same account"),
    gettext_noop("its vendor is called elsewhere, or as somebody else, by now"),
    gettext_noop("what is in doubt is asked about, and called again, only where and as whom it was called"),
    gettext_noop("now"),
    gettext_noop("tonight"),
    gettext_noop("at a time"),
    gettext_noop("Small Only"),
    gettext_noop("Small Priority"),
    gettext_noop("Large Priority"),
    gettext_noop("Large Only"),
    gettext_noop("Session Finished"),
    gettext_noop("Session Paused"),
    gettext_noop("Message Sent"),
    gettext_noop("Message Failed"),
    gettext_noop("Message Needs Attention"),
    gettext_noop("Message Delivered"),
    gettext_noop("Message Bounced"),
    gettext_noop("Message Complained"),
    gettext_noop("Today"),
    gettext_noop("Yesterday"),
    gettext_noop("Last 3 days"),
    gettext_noop("Last 7 days"),
    gettext_noop("Any date"),
    gettext_noop("States"),
    gettext_noop("Dispatch now"),
    gettext_noop("Send the rest again"),
    gettext_noop("Send again those in doubt"),
    gettext_noop("Mark those in doubt as sent"),
    gettext_noop("last hour"),
    gettext_noop("last day"),
    gettext_noop("works"),
    gettext_noop("closed"),
    gettext_noop("off"),
    gettext_noop("in use"),
    gettext_noop("holds"),
    gettext_noop("past"),
    gettext_noop("broken"),
    gettext_noop("kept"),
    gettext_noop("save it as XLSX or as 'CSV UTF-8'"),
    gettext_noop("PostgreSQL has lost commits in a crash: a person has to run manage.py recover_store"),
    gettext_noop("PostgreSQL has crashed: what Redis remembers is compared with the rows"),
    gettext_noop("signed by"),
    gettext_noop("no message is in two claims of one sender"),
    gettext_noop("no message waits for a call that a lost sender may have made"),
    gettext_noop("no message belongs to two jobs"),
    gettext_noop("each time that a person sent again has a reference of its own"),
    gettext_noop("no reference has changed but by a decision to send again"),
    gettext_noop("no two messages have one letter of the vendor"),
    gettext_noop("the rows are in the PostgreSQL that wrote them (else: recover_store)"),
    gettext_noop("no message was called before it went to another vendor"),
    gettext_noop("each campaign has as many messages as recipients"),
    gettext_noop("the jobs of a campaign add up to its recipients"),
    gettext_noop("the children of a parent and what is not cut yet add up to its size"),
    gettext_noop("no job counts more messages than it has"),
    gettext_noop("each claimed message belongs to its job"),
    gettext_noop("each answer is merged into its message"),
    gettext_noop("no job ends without some of its messages"),
    gettext_noop("what went to another vendor is in jobs of that vendor"),
    gettext_noop("no constraint of a cut that was broken off refuses messages"),
    gettext_noop("no setting of PostgreSQL lets a crash take back what was committed (else: doctor)"),
    gettext_noop("SELECT campaigns_partition_forget_bounds() takes it away"),
    gettext_noop(
        "a standby follows, and no commit waits for a standby: a failover loses the last ones, and recover_store puts"
        " in doubt what may have been called"
    ),
    gettext_noop(
        "DATABASE_URL names several servers, and no commit waits for a standby: a failover loses the last ones, and"
        " recover_store puts in doubt what may have been called"
    ),
    gettext_noop("Set synchronous_standby_names on the primary, for example to 'ANY 1 (*)'"),
    gettext_noop(
        "Redis keeps nothing over a restart: notifications wait for the sweep then, and after a failover of PostgreSQL"
        " all that waits is in doubt"
    ),
    gettext_noop("Set appendonly yes in its configuration"),
    gettext_noop("what is accepted has evidence"),
    gettext_noop("what was recorded as accepted still is"),
    gettext_noop("the accounts of what vendors charge are the messages that were accepted"),
    gettext_noop("the accounts of today have the units of all messages that were called today and accepted"),
    gettext_noop("what is reported as delivered or bounced is accepted, by a sending that there was"),
    gettext_noop("the database still refuses rows that contradict themselves"),
    gettext_noop("no window holds more calls than its limit"),
    gettext_noop("each call is in the ledger"),
    gettext_noop("no call was allowed after a stop or in a pause"),
    gettext_noop("no call was allowed in a pause of its vendor or credential"),
    gettext_noop("no message of a campaign was called before somebody had approved it"),
    gettext_noop("no parent that is over hides a child that is not"),
    gettext_noop("each vendor has at most one dispatch run a night"),
    gettext_noop("each run counted the jobs that it dispatched, all of its own vendor"),
    gettext_noop("a logged job has no claims"),
    gettext_noop("the counters of a logged job are those of its messages"),
    gettext_noop("the counters of a finished parent are those of its children"),
    gettext_noop("no exclusive credential serves two campaigns"),
    gettext_noop("no mailcaster has two jobs"),
    gettext_noop("every job that is not final has been moved within its deadline"),
    gettext_noop("each doubt that the vendor can settle waits for its turn"),
)


SENTENCES = {"state"}  # names of values to translate as texts
GROUPED = re.compile(r"\d{1,3}(,\d{3})+")


def in_language(text: str) -> str:
    """Return the text in the language of the page, or unchanged if that is English or the text is unknown."""
    if not text or get_language() == settings.LANGUAGE_CODE:
        return text
    if isinstance(text, Said):
        return show(text)
    if (known := gettext(text)) != text:
        return known
    for form, pattern in _patterns(FORMS):
        if found := pattern.fullmatch(text):
            return gettext(form) % {name: _filled(name, one) for name, one in found.groupdict().items()}
    return text


def _filled(name: str, text: str) -> str:
    if name in SENTENCES:
        return in_language(text)
    return formats.number_format(int(text.replace(",", "")), force_grouping=True) if GROUPED.fullmatch(text) else text


@cache
def _patterns(of: tuple[str, ...]) -> list[tuple[str, re.Pattern[str]]]:
    parts = sorted(((form, re.split(r"%\((\w+)\)s", form)) for form in of), key=_said, reverse=True)
    return [(form, re.compile("".join(_part(n, one) for n, one in enumerate(some)), re.DOTALL)) for form, some in parts]


def _said(form: tuple[str, list[str]]) -> tuple[bool, int]:
    """Return a sort key: of two matching forms, prefer one that starts with fixed words, then the more specific one."""
    return bool(form[1][0]), sum(map(len, form[1][::2]))


KINDS = {"count": "[0-9,]+", "setting": "[a-z0-9_]+"}


def _part(number: int, text: str) -> str:
    """Odd parts are names of values; a count or an id never matches typed text."""
    if not number % 2:
        return re.escape(text)
    return f"(?P<{text}>{'[0-9,]+' if text.endswith('_id') else KINDS.get(text, '.+?')})"
