"""Rows for tests: small plain functions that store what a test asks for and nothing clever.

Names are made unique by the database's own ids, so factories never clash between tests or threads.
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from campaigns.models import Campaign, Claim, Entitlement, Job, Message, Sponsor
from campaigns.models.jobs import new_uuids
from campaigns.models.states import RUNNING, Status
from vendors import redis_clients
from vendors.configuration import create_default_casters
from vendors.models import Credential, Mailcaster, RateLimit, Vendor, VendorCondition

_numbers = itertools.count(1)
_LETTERS = str.maketrans("0123456789", "bcdfghjklm")
LEASED = (*RUNNING, Status.RECOVERING)


def unique(word: str) -> str:
    """A name that nobody else in this test run has: without digits, which no test that looks for a number finds."""
    return f"{word}-{os.getpid()}-{next(_numbers)}".translate(_LETTERS)


def sponsor(name: str = "") -> Sponsor:
    """A sponsor that may use every vendor that there is."""
    made = Sponsor.objects.get_or_create(name=name or unique("sponsor"))[0]
    entitle([made], Vendor.objects.all())
    return made


def entitle(sponsors: Iterable[Sponsor], vendors: Iterable[Vendor]) -> None:
    """They may use all credentials of these vendors."""
    rows = [Entitlement(sponsor=one, vendor=of) for of in vendors for one in sponsors]
    Entitlement.objects.bulk_create(rows, ignore_conflicts=True)


def vendor(
    slug: str = "",
    adapter: str = "http",
    settings: Mapping[str, Any] | None = None,
    limits: Iterable[tuple[int, float]] = (),
    casters: Sequence[str] | None = (),
    **fields: Any,
) -> Vendor:
    """A vendor with its limits (units, seconds) and casters MC1, MC2, ... of these kinds; None: the default set.

    Every sponsor that there is may use it.
    """
    slug = slug or unique("vendor")
    made = Vendor.objects.create(slug=slug, name=slug, adapter=adapter, settings=dict(settings or {}), **fields)
    for units, seconds in limits:
        RateLimit.objects.create(vendor=made, units=units, seconds=seconds)
    if casters is None:
        create_default_casters(made)
    for number, kind in enumerate(casters or (), start=1):
        caster(made, f"MC{number}", kind)
    entitle(Sponsor.objects.all(), [made])
    return made


def caster(of: Vendor, name: str = "", kind: str = "large-priority", **sizes: Any) -> Mailcaster:
    """sizes: min_size, max_size, percentage; the model's defaults are document 003's."""
    return Mailcaster.objects.create(vendor=of, name=name or unique("MC"), kind=kind, **sizes)


def at_work(of: Vendor, slots: int = 4) -> Vendor:
    """Nothing but the window keeps its jobs: a caster is enabled, and a worker of so many senders reads its queue."""
    if not of.mailcasters.exists():
        caster(of)
    redis_clients.register_worker(
        settings.REDIS_URL, redis_clients.Worker(unique("worker"), frozenset([of.queue]), slots), seconds=3600
    )
    return of


def credential(of: Vendor | None = None, name: str = "", **fields: Any) -> Credential:
    return Credential.objects.create(vendor=of or vendor(), name=name or unique("login"), **fields)


def campaign(
    recipients: int | Sequence[str] = 1,
    *,
    of: Credential | None = None,
    by: Sponsor | None = None,
    messages: bool = True,
    **fields: Any,
) -> Campaign:
    """A campaign with its messages r1@sandbox.example, r2@... or to these addresses.

    messages=False leaves the message rows out, for tests of jobs of many thousands.
    """
    to = range(1, recipients + 1) if isinstance(recipients, int) else recipients
    fields = {"name": unique("campaign"), "subject": "Hello", "body": "Good day", **fields}
    with transaction.atomic():
        by, of = by or sponsor(), of or credential()
        entitle([by], [of.vendor])
        made = Campaign.objects.create(
            sponsor=by,
            credential=of,
            first_message=_block(len(to)),
            size=len(to),
            **fields,
        )
        if messages:
            _messages(made, [f"r{one}@sandbox.example" if isinstance(one, int) else one for one in to])
    return made


def job(of: Campaign, status: str = Status.READY, **fields: Any) -> Job:
    """A job over the whole campaign in this state, with all that the state asks for (lease, remaining)."""
    fields = {"first_message": of.first_message, "size": of.size, **fields}
    if status in (Status.P_QUEUED, Status.P_ASSIGNING):
        fields.setdefault("remaining", fields["size"])
    if status in LEASED:
        fields = {"fence": 1, "heartbeat_at": timezone.now(), "started_at": timezone.now(), **fields}
    return Job.objects.create(
        campaign=of,
        sponsor_id=of.sponsor_id,
        credential=of.credential,
        vendor=of.credential.vendor,
        status=status,
        **fields,
    )


def claim(of: Job, numbers: Iterable[int] = (), **fields: Any) -> Claim:
    """A claim of the job's present sender: of these of its messages, counted from 0, or of all."""
    ids = [of.first_message + number for number in numbers] or list(range(of.first_message, of.end))
    return Claim.objects.create(job=of, **{"fence": of.fence, "at": timezone.now(), "messages": ids, **fields})


def condition(login: Credential, failing: timedelta | None = None, tries: int = 29, **fields: Any) -> VendorCondition:
    """The last calls over the credential were answered well, or, for so long, not."""
    now = timezone.now()
    bad = {"failing_since": now - failing, "last_at": now, "tries": tries} if failing else {"good_at": now}
    where = Credential.objects.values_list(F("destination") + F("vendor__destination"), flat=True).get(pk=login.pk)
    of = {"destination": where, "last_answer": fields.pop("answer", ""), "failing_since": None, "tries": 0}
    kept = {**of, **bad, **fields}
    return VendorCondition.objects.update_or_create(credential=login, receiver="", defaults=kept)[0]


def beat_sends() -> None:
    """Beat has sent a task just now."""
    every, _ = IntervalSchedule.objects.get_or_create(every=10, period="seconds")
    PeriodicTask.objects.update_or_create(
        name="a", defaults={"task": "a", "interval": every, "last_run_at": timezone.now()}
    )


def campaign_with_job(
    recipients: int | Sequence[str] = 1,
    *,
    status: str = Status.READY,
    of: Credential | None = None,
    by: Sponsor | None = None,
    messages: bool = True,
    **fields: Any,
) -> Job:
    """A campaign with one job over all of it; fields are the job's."""
    return job(campaign(recipients, of=of, by=by, messages=messages), status, **fields)


def _block(size: int) -> int:
    """The first of that many message ids in a row. In a transaction: the lock is its."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('campaigns_message_block'))")
        cursor.execute("SELECT setval('campaigns_message_block', nextval('campaigns_message_block') + %s - 1)", [size])
        return cursor.fetchone()[0] - size + 1


ALIKE = ", ".join(
    field.column for field in Message._meta.local_concrete_fields if field.column not in ("id", "uuid", "recipient")
)
MORE = f"""
INSERT INTO campaigns_message (id, uuid, recipient, {ALIKE})
SELECT new_id, new_uuid, new_to, {ALIKE}
FROM campaigns_message m, unnest(%s::bigint[], %s::uuid[], %s::text[]) AS one (new_id, new_uuid, new_to) WHERE m.id = %s
"""


def _messages(of: Campaign, addresses: Sequence[str]) -> None:
    """The first by Django, the others alike by PostgreSQL, which takes a tenth of the time."""
    if not addresses:
        return
    ids = range(of.first_message, of.first_message + len(addresses))
    uuids = [UUID(uuid.decode()) for uuid in new_uuids(ids)]
    Message.objects.create(id=ids[0], uuid=uuids[0], campaign=of, recipient=addresses[0])
    if len(ids) > 1:
        with connection.cursor() as cursor:
            cursor.execute(MORE, [list(ids[1:]), uuids[1:], list(addresses[1:]), ids[0]])
