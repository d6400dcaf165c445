"""Reasons that mailhub itself has found for the outcome of a call, recognised in the texts that columns keep.

A reason is a plain English text: it passes Redis, journals and columns beside the words of vendors. `read_reason` finds
its form and values again, so that pages show it in the reader's language. Any other text is somebody's own words.
A pause keeps both.
"""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from psycopg.types.json import Jsonb

from vendors import said
from vendors.locks import CREDENTIAL_ALONE
from vendors.said import Said, gettext_noop

NESTED = frozenset({"why", "later"})  # values that may be reasons of ours again
_NUMBERS = {"status": r"\d{3}", "number": r"-?\d+", "seconds": r"\d+(?:\.\d+)?", "count": r"\d+"}
# An earlier form wins over a later one.
FORMS = (
    gettext_noop("http %(status)s: login or account refused"),
    gettext_noop("http %(status)s: the address takes no messages"),
    gettext_noop("http %(status)s: too fast for the vendor"),
    gettext_noop("http %(status)s: redirects are not followed"),
    gettext_noop("http %(status)s: not processed; redirects are not followed"),
    gettext_noop("http %(status)s without an id"),
    gettext_noop("http %(status)s without JSON"),
    gettext_noop("http %(status)s without an entry for each letter"),
    gettext_noop("http %(status)s for a whole batch: %(words)s"),
    gettext_noop("http %(status)s, and an answer that cannot be understood"),
    gettext_noop("smtp %(status)s within the mail"),
    gettext_noop("smtp %(status)s at %(phase)s: %(words)s"),
    gettext_noop("refused: %(words)s"),
    gettext_noop("no connection within %(seconds)s s"),
    gettext_noop("no connection: %(why)s"),
    gettext_noop("no TLS: %(why)s"),
    gettext_noop("no SFTP: %(why)s"),
    gettext_noop("[Errno %(number)s] Connection refused"),
    gettext_noop("[Errno %(number)s] Connection reset by peer"),
    gettext_noop("[Errno %(number)s] Connection timed out"),
    gettext_noop("[Errno %(number)s] No route to host"),
    gettext_noop("[Errno %(number)s] Network is unreachable"),
    gettext_noop("[Errno %(number)s] Broken pipe"),
    gettext_noop("[Errno %(number)s] Name or service not known"),
    gettext_noop("[Errno %(number)s] No address associated with hostname"),
    gettext_noop("[Errno %(number)s] Temporary failure in name resolution"),
    gettext_noop("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: %(words)s"),
    gettext_noop("no reply within %(seconds)s s"),
    gettext_noop("no complete answer within %(seconds)s s"),
    gettext_noop("no answer within %(seconds)s s"),
    gettext_noop("no answer before the deadline"),
    gettext_noop("connection lost: closed"),
    gettext_noop("connection lost: %(why)s"),
    gettext_noop("the connection was lost: %(why)s"),
    gettext_noop("the vendor closed the connection before the end of its answer"),
    gettext_noop("the vendor closed the connection at once or spoke unasked"),
    gettext_noop("the vendor switched protocols"),
    gettext_noop("the answer is not HTTP: %(words)s"),
    gettext_noop("the answer is longer than %(count)s bytes"),
    gettext_noop("the relay spoke before TLS began"),
    gettext_noop("the relay broke off within the mail"),
    gettext_noop("its round broke off before it"),
    gettext_noop("the mail has no sender identity"),
    gettext_noop("the adapter is closed"),
    gettext_noop("the request was not made in time"),
    gettext_noop("the credential has no secret %(words)s"),
    gettext_noop("several letters have the same id"),
    gettext_noop("this vendor offers no look-up"),
    gettext_noop("the answer to the look-up has not the form of the description"),
    gettext_noop("the look-up found other letters than the one asked for"),
    gettext_noop("there is no room in this batch"),
    gettext_noop("its pages were not made in time"),
    gettext_noop("its letters were not brought together in time"),
    gettext_noop("it is in the batch %(name)s, which the vendor has not acknowledged"),
    gettext_noop("in the batch %(name)s, which the vendor has not acknowledged"),
    gettext_noop("the manifest %(name)s: %(why)s"),
    gettext_noop("the folder: %(why)s"),
    gettext_noop("%(name)s leads out of the folder of print files"),
    gettext_noop("the server has kept %(count)s of %(number)s bytes"),
    gettext_noop("the server shows another host key: %(words)s"),
    gettext_noop("the server refuses the login: %(words)s"),
    gettext_noop("the server does not answer"),
    gettext_noop("the server: %(words)s"),
    gettext_noop("it took more than %(seconds)s s"),
    gettext_noop("%(name)s: %(why)s; then it took more than %(seconds)s s"),
    gettext_noop("%(name)s: %(why)s; its temporary name is gone"),
    gettext_noop("%(name)s: %(why)s; there are both names"),
    gettext_noop("%(name)s: %(why)s; then: %(later)s"),
    gettext_noop("its files cannot be read: %(words)s"),
    gettext_noop("it costs %(count)s, more than the limit of %(number)s"),
    gettext_noop("its receiver's limit is used up"),
    gettext_noop("not allowed any more: stopped, settled, or it took too long"),
    gettext_noop("its permit was too old to start a call"),
    gettext_noop("%(name)s in the adapter"),
    gettext_noop(
        "%(count)s messages in a row were refused with the same words: %(words)s: check the account"
    ),
    gettext_noop("the vendor asked to wait"),
    gettext_noop("the vendor is not reached"),
    gettext_noop("the vendor gives no clear answer: a single call tries it again"),
    gettext_noop("waits for the vendor: %(why)s"),
    gettext_noop("waits for its turn at the vendor"),
    gettext_noop("rate limit reached"),
    gettext_noop("a message costs more than the limit of %(count)s"),
    gettext_noop("the limit is 0"),
    gettext_noop("cannot be sent: %(why)s"),
    gettext_noop("paused: %(why)s"),
)  # fmt: skip


def _compile_form(form: str) -> re.Pattern[str]:
    parts = re.split(r"%\((\w+)\)s", form)
    found = [
        f"(?P<{part}>{_NUMBERS.get(part, '.+?')})" if place % 2 else re.escape(part) for place, part in enumerate(parts)
    ]
    return re.compile("".join(found), re.DOTALL | re.ASCII)


_PATTERNS = [(form, _compile_form(form)) for form in FORMS]


@lru_cache(1024)
def read_reason(text: str) -> str:
    """Return the text as a Said if it is a reason of ours, else as it is. A Said is returned unchanged."""
    if isinstance(text, Said):
        return text
    for form, pattern in _PATTERNS:
        if found := pattern.fullmatch(text):
            values: dict[str, Any] = found.groupdict()
            values |= {name: read_reason(values[name]) for name in values.keys() & NESTED}
            measures = {name: Decimal(values[name]) for name in values.keys() & _NUMBERS.keys()}
            as_written = Said(form, **values)
            return measured if (measured := Said(form, **values | measures)) == text else as_written
    return text


PAUSE = f"""
UPDATE vendors_credential
SET paused = true, paused_reason = %(paused_reason)s, paused_reason_said = %(paused_reason_said)s
WHERE id = %(credential)s AND CASE WHEN NOT paused THEN {CREDENTIAL_ALONE} END
"""


def pause_params(credential_id: int, reason: str) -> dict[str, Any]:
    """Return the parameters of PAUSE, which pauses a credential until somebody resumes it."""
    kept = said.columns("paused_reason", read_reason(reason))
    data = kept["paused_reason_said"]
    return {"credential": credential_id, **kept, "paused_reason_said": data and Jsonb(data)}
