"""Receiving domains that operators put into groups themselves: their rows win over receivers.toml.

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
from vendors.models import ReceiverDomain, ReceiverLimit
from vendors.receivers import (
    DOMAIN_MAX,
    OTHERS,
    own_domains,
    plain_domain,
    replace_own_domains,
    table_group,
    table_groups,
)
from vendors.said import Said, gettext_noop

READ_EVERY = 10.0
"""Seconds between two reads of a process that sends nothing."""
MOST_DOMAINS = 10_000
MOST_NAMED = 5
DOMAIN = re.compile(r"([a-z0-9_]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]")
GROUP = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
NO_DOMAIN = gettext_noop("%(name)s is no domain. Write one such as example.org.")
NO_NAME = gettext_noop("%(name)s is no name of a group. Write small letters, digits, dots and hyphens, at most 40.")
TOO_MANY = gettext_noop("There are %(count)s domains already. Remove some first.")
IDLE = gettext_noop("The group %(receiver)s has no domain any more, so its limits hold nothing back.")
MOVED = gettext_noop("%(domain)s: %(before)s → %(after)s")

# One change at a time, before the turns of vendors, which a trigger on the rows takes.
ONE_CHANGE = "SELECT pg_advisory_xact_lock(hashtext('vendors_receiverdomain'))"
# Calls of before are in the ledger under the domain's former group. Up to here a row counts with all its units when
# windows of the group that gains the domain are rebuilt (claiming/rebuild.py), also those of later limits: never too
# few. Claims take their number under the locks of the vendors of e-mail, which this transaction has by now.
COUNT_WHOLE = """
INSERT INTO vendors_receivermove (receiver, ledger) VALUES (%(receiver)s, nextval('vendors_usage_id_seq'))
ON CONFLICT (receiver) DO UPDATE SET ledger = excluded.ledger
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
    """Put a domain into a group, even against the table. Returns False if a row says so already.

    Raises ValidationError.
    """
    plain = checked_domain(domain)
    check_group(receiver)
    with transaction.atomic():
        _await_others()
        row = ReceiverDomain.objects.filter(domain=plain).first()
        if row is not None and row.receiver == receiver:
            return False
        if row is None and (count := ReceiverDomain.objects.count()) >= MOST_DOMAINS:
            raise ValidationError(Said(TOO_MANY, count=count))
        before = table_group(plain) if row is None else row.receiver
        if row is None:
            row = ReceiverDomain.objects.create(domain=plain, receiver=receiver)
        else:
            ReceiverDomain.objects.filter(pk=row.pk).update(receiver=receiver)
        _record_domain(row.pk, plain, before, receiver, by)
    return True


def remove_domain(domain: str, by: history.Actor) -> bool:
    """Remove a row, so that the table decides again. Returns False if there is none."""
    plain = plain_domain(domain)
    with transaction.atomic():
        _await_others()
        row = ReceiverDomain.objects.filter(domain=plain).first()
        if row is None:
            return False
        pk, before = row.pk, row.receiver
        row.delete()
        _record_domain(pk, plain, before, table_group(plain), by)
    return True


def describe_idle_limits() -> list[Said]:
    """Return a sentence for each group that has limits and no domain, up to MOST_NAMED."""
    limited = ReceiverLimit.objects.exclude(receiver__in=[*table_groups(), OTHERS])
    idle = limited.exclude(receiver__in=ReceiverDomain.objects.values("receiver")).order_by("receiver")
    return [Said(IDLE, receiver=one) for one in idle.values_list("receiver", flat=True).distinct()[:MOST_NAMED]]


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


def _await_others() -> None:
    """Wait for other changes, and let this process know the rows once this one is stored."""
    with connection.cursor() as cursor:
        cursor.execute(ONE_CHANGE)
    transaction.on_commit(lambda: refresh_domains(at_once=True), robust=True)


def _record_domain(pk: int, domain: str, before: str, after: str, by: history.Actor) -> None:
    if before != after:
        with connection.cursor() as cursor:
            cursor.execute(COUNT_WHOLE, {"receiver": after})
    history.record_changes(by, ReceiverDomain, [(pk, Said(MOVED, domain=domain, before=before, after=after))])
