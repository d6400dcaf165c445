"""Texts that code stores or compares in English, and pages show in another language.

They stand where they are made as well; here they are named for the catalogue. A sentence with something filled in is
known by its form. What is not named here is shown as it is.
"""

import re
from functools import cache

from django.conf import settings
from django.utils.translation import get_language, gettext, gettext_noop

FIXED = (
    gettext_noop("Any"),
    gettext_noop("what it costs is not known: the vendor's settings or its secret are not complete"),
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
    gettext_noop("User"),
    gettext_noop("API key"),
    gettext_noop("Shell"),
    gettext_noop("Live"),
    gettext_noop("Test: to sandbox vendors only"),
    gettext_noop("Send"),
    gettext_noop("Read"),
    gettext_noop("Ops"),
    gettext_noop("send again"),
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
    gettext_noop("unknown: Redis is away"),
    gettext_noop("paused"),
    gettext_noop("the receiver answered 410 Gone"),
    gettext_noop("held: its sponsor may not use this vendor or credential any more"),
    gettext_noop("held: its sender identity is disabled"),
    gettext_noop("held: its sponsor may not send transactional mail any more"),
    gettext_noop("There is no list of recipients yet."),
    gettext_noop("The list is being checked."),
    gettext_noop("The list must be checked once more."),
    gettext_noop("No row of the list can be sent."),
    gettext_noop("it is open by whom it is sent: choose that with the message"),
    gettext_noop("an e-mail needs a subject"),
    gettext_noop("there is no text yet"),
    gettext_noop("the file is empty"),
    gettext_noop("there is no header: the first row must name the columns"),
    gettext_noop("column 1 has no name in the header"),
    gettext_noop("a cell is larger than 100,000 characters, or its quote is never closed"),
    gettext_noop("a quote is opened here and never closed"),
    gettext_noop("there is no recipient"),
    gettext_noop("there are no recipients"),
    gettext_noop("there are no recipients: every row would be left out"),
    gettext_noop("the subject has a line break in it"),
    gettext_noop("the spreadsheet has no visible sheet"),
    gettext_noop("the file is a zip file, but no XLSX spreadsheet: save it as XLSX or as 'CSV UTF-8'"),
    gettext_noop("a transactional campaign has no topic: nobody can unsubscribe from it"),
    gettext_noop("it was asked for at a shell, so somebody approves it on its page"),
    gettext_noop("say why it is refused: who asked for it reads that"),
    gettext_noop("a remark is one line of at most 255 characters"),
    gettext_noop("it never goes out"),
    gettext_noop("it goes on"),
    gettext_noop("The store was recovered in the meantime: nothing was done."),
    gettext_noop("The numbers have changed since they were shown: nothing was done. Look at the new ones."),
    gettext_noop("none of these is in doubt any more"),
)
FORMS = (
    gettext_noop("%(name)s is empty, and the template shows it"),
    gettext_noop("%(count)s rows of the list are bad: correct them, or leave them out."),
    gettext_noop("there is no recipient %(number)s"),
    gettext_noop("there is no column %(name)s"),
    gettext_noop("the file is %(what)s, not CSV: save it as XLSX or as 'CSV UTF-8'"),
    gettext_noop("column %(column)s has the same name as column %(before)s: %(name)s"),
    gettext_noop("column %(column)s is called %(name)s: that is the name of the first column in every template"),
    gettext_noop("column %(column)s is not blank, and has no name in the header"),
    gettext_noop("%(count)s cells, but the header has %(width)s"),
    gettext_noop("%(count)s cell, but the header has %(width)s"),
    gettext_noop("there is no header: the first row holds the recipient %(name)s"),
    gettext_noop("the template needs %(names)s; the columns are %(known)s"),
    gettext_noop("%(address)s is not an e-mail address: %(why)s"),
    gettext_noop("%(number)s is not a phone number: %(why)s"),
    gettext_noop("the same recipient as in row %(row)s: %(name)s"),
    gettext_noop("the file has %(size)s bytes; %(most)s are the most"),
    gettext_noop("the field %(name)s is missing"),
    gettext_noop("the spreadsheet is damaged: %(why)s"),
    gettext_noop("the spreadsheet cannot be read: %(why)s"),
    gettext_noop("%(sponsor)s may not use %(credential)s; to allow it: %(command)s"),
    gettext_noop("%(name)s has not the permission to approve campaigns"),
    gettext_noop("%(name)s has asked for it: another person approves it"),
    gettext_noop("it is not as it was when its approval was asked for: %(what)s"),
    gettext_noop("campaign %(campaign)s was %(verdict)s at %(when)s already"),
    gettext_noop("waits for approval: %(name)s has asked for it, and somebody else decides (approve_campaign)"),
    gettext_noop("waits for approval, asked for by %(name)s; then it stays paused: %(why)s"),
    gettext_noop("waits for approval, asked for by %(name)s"),
    gettext_noop("refused by %(name)s; it never goes out"),
    gettext_noop("its first %(count)s of %(size)s are called; %(sums)s"),
    gettext_noop("job %(job)s is stopped already"),
    gettext_noop("job %(job)s stopped: no new call starts"),
    gettext_noop("job %(job)s sends %(what)s"),
    gettext_noop("job %(job)s dispatched"),
    gettext_noop("job %(job)s is paused already: %(why)s"),
    gettext_noop("job %(job)s's campaign paused: no new call starts until it is resumed"),
    gettext_noop("job %(job)s's campaign goes on"),
    gettext_noop("job %(job)s is not paused"),
    gettext_noop("somebody else has just decided about job %(job)s: look again"),
    gettext_noop("job %(job)s is still being finalised; try again in a moment"),
    gettext_noop("there is no template %(name)s"),
    gettext_noop("something went wrong that should not have (%(error)s). Nothing was sent. Please try again."),
)


def in_language(text: str) -> str:
    """The text in the language of the page; as it is if it is English, or not known."""
    if not text or get_language() == settings.LANGUAGE_CODE:
        return text
    if (known := gettext(text)) != text:
        return known
    for form, pattern in _patterns():
        if found := pattern.fullmatch(text):
            return gettext(form) % found.groupdict()
    return text


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    parts = [(form, re.split(r"%\((\w+)\)s", form)) for form in FORMS]
    return [(form, re.compile("".join(_part(n, one) for n, one in enumerate(some)), re.DOTALL)) for form, some in parts]


def _part(number: int, text: str) -> str:
    """The odd ones are names of what is filled in."""
    return f"(?P<{text}>.+?)" if number % 2 else re.escape(text)
