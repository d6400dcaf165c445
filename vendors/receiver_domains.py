"""Receiving domains that operators put into groups themselves: rows that win over receivers.toml.

Senders read the rows with the limits, whenever `limits_version` changes; the database raises it with each row. Other
processes call `refresh_domains`, which reads at most once in READ_EVERY seconds. A process that cannot read them keeps
what it had.
"""

import re
import threading
import time
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connection, transaction

from vendors import history
from vendors.models import ReceiverDomain
from vendors.receivers import DOMAIN_MAX, OTHERS, groups_of_domains, own_domains, plain_domain, replace_own_domains
from vendors.said import Said, gettext_noop

READ_EVERY = 10.0
"""Seconds between two reads of a process that sends nothing."""
MOST_DOMAINS = 10_000
DOMAIN = re.compile(r"([a-z0-9_]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]")
GROUP = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
NO_DOMAIN = gettext_noop("%(name)s is no domain. Write one such as example.org.")
NO_NAME = gettext_noop("%(name)s is no name of a group. Write small letters, digits, dots and hyphens, at most 40.")
TOO_MANY = gettext_noop("There are %(count)s domains already. Remove some first.")
MOVED = gettext_noop("%(domain)s: %(before)s → %(after)s")

# Calls of before are in the ledger under the domain's former group. Without the group that gains the domain, a row
# counts with all its units when the group's windows are rebuilt: never too few.
FORGET_COUNTS = """
UPDATE vendors_usage u SET receivers = u.receivers - %(receiver)s::text
FROM (SELECT vendor_id, max(seconds) AS longest FROM vendors_receiverlimit WHERE receiver = %(receiver)s
      GROUP BY vendor_id) w
WHERE u.vendor_id = w.vendor_id AND u.receivers IS NOT NULL
    AND u.until > clock_timestamp() - (w.longest + 60) * interval '1 second'
"""

_reading = threading.Lock()
_read_at: float | None = None


def refresh_domains(at_once: bool = False) -> None:
    """Read the rows if the last read was READ_EVERY seconds ago, or `at_once`."""
    global _read_at
    with _reading:
        if not at_once and _read_at is not None and time.monotonic() - _read_at < READ_EVERY:
            return
        known = own_domains()
        found = dict(ReceiverDomain.objects.values_list("domain", "receiver")[:MOST_DOMAINS])
        if known is own_domains():  # a sender of this process may have read newer ones in the meantime
            replace_own_domains(found)
        _read_at = time.monotonic()


def put_domain(domain: str, receiver: str, by: history.Actor) -> bool:
    """Put a domain into a group, whatever the table says. Returns False if a row says so already.

    Raises ValidationError.
    """
    plain = checked_domain(domain)
    check_group(receiver)
    with transaction.atomic():
        row = ReceiverDomain.objects.select_for_update().filter(domain=plain).first()
        if row is not None and row.receiver == receiver:
            return False
        if row is None and (count := ReceiverDomain.objects.count()) >= MOST_DOMAINS:
            raise ValidationError(Said(TOO_MANY, count=count))
        refresh_domains(at_once=True)
        before = groups_of_domains().get(plain, OTHERS)
        if row is None:
            row = ReceiverDomain.objects.create(domain=plain, receiver=receiver)
        else:
            ReceiverDomain.objects.filter(pk=row.pk).update(receiver=receiver)
        _record(row.pk, plain, before, receiver, by)
    refresh_domains(at_once=True)
    return True


def remove_domain(domain: str, by: history.Actor) -> bool:
    """Remove a row, so that the table decides again. Returns False if there is none."""
    plain = plain_domain(domain)
    with transaction.atomic():
        row = ReceiverDomain.objects.select_for_update().filter(domain=plain).first()
        if row is None:
            return False
        pk, before = row.pk, row.receiver
        row.delete()
        refresh_domains(at_once=True)
        _record(pk, plain, before, groups_of_domains().get(plain, OTHERS), by)
    return True


def checked_domain(domain: str) -> str:
    """Return a domain as it is stored. Raises ValidationError if it is none."""
    plain = plain_domain(domain)
    if len(plain) > DOMAIN_MAX or not DOMAIN.fullmatch(plain):
        raise ValidationError({"domain": Said(NO_DOMAIN, name=domain[:DOMAIN_MAX])})
    return plain


def check_group(receiver: str) -> None:
    """Raise ValidationError if a group cannot have this name."""
    if receiver != OTHERS and not GROUP.fullmatch(receiver):
        raise ValidationError({"receiver": Said(NO_NAME, name=receiver)})


def domain_facts(domain: str, receiver: str, source: str) -> dict[str, Any]:
    """Return a domain for --json. source: "own" or "table"."""
    return {"domain": domain, "receiver": receiver, "source": source}


def _record(pk: int, domain: str, before: str, after: str, by: history.Actor) -> None:
    if before != after:
        with connection.cursor() as cursor:
            cursor.execute(FORGET_COUNTS, {"receiver": after})
    history.record(by, ReceiverDomain, [(pk, Said(MOVED, domain=domain, before=before, after=after))])
