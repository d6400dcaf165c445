"""The letters of a leased job: everything needed to make them, read once, and how one is made."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import orjson
from django.conf import settings
from django.db import connection
from django.db.models.expressions import RawSQL

from campaigns.engine import ports
from campaigns.engine.ports import JobLetters
from campaigns.engine.suppressed.recent import Asker
from campaigns.engine.threads import columns_of
from campaigns.models import Campaign
from campaigns.models.identities import Identity
from vendors import adapters
from vendors.adapters.base import Adapter, Letter
from vendors.models import Credential, Vendor
from vendors.outcomes import Outcome, Refused

LONG = 0.001  # seconds; after a template that takes longer, other tasks get their turn
CALL_SIZE = 10_000_000  # characters in the letters of one call, because each connection keeps its call in memory

_Call = TypeVar("_Call")


@dataclass(frozen=True, slots=True)
class Lease:
    """A sender's right to a job. Statements under an older fence change nothing but late acceptances."""

    job_id: int
    fence: int


class ClaimedMessage(NamedTuple):
    """A message whose claim has committed, so its call may start. reference: as Message.reference."""

    id: int
    reference: str
    recipient: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A leaf with the lease of one sender, and everything that the sender needs to know of it, read once.

    end: one past the last message; begin: where its sender begins.
    """

    lease: Lease
    first: int
    end: int
    begin: int
    vendor_id: int
    mail_class: int
    credential_id: int
    campaign: Campaign
    letters: JobLetters
    adapter: Adapter
    destination: int  # of the adapter's calls (vendors/destinations.py)
    connection_key: bytes  # the adapter's settings and secret; adapters with equal keys share connections
    asker: Asker

    @property
    def deadline(self) -> datetime | None:
        return self.campaign.deadline

    def letter(self, message: ClaimedMessage) -> Letter | Refused:
        """Return the message as the vendor gets it; Refused if its template cannot be rendered with its fields."""
        return self.letters.letter(message)


# The version of a campaign or identity is the transaction that wrote its row, and the row's position. Another store may
# have used the same pair, so the number of adoptions is part of it. Rows of vendors and credentials change while mail
# is sent, so their version is made of the columns in use.
USED = """concat_ws(' ', {v}.adapter, {v}.slug, {v}.channel, md5({v}.settings::text), md5({l}.secret), {v}.destination,
        {l}.destination)"""
OF_JOB = f"""
SELECT j.first_message, j.first_message + j.size, coalesce(j.next_message, j.first_message), j.suppressions,
    j.mail_class, j.campaign_id, concat_ws(' ', s.adoptions, c.xmin, c.ctid), i.id,
    concat_ws(' ', s.adoptions, i.xmin, i.ctid), j.vendor_id, j.credential_id, {USED.format(v="v", l="l")}
FROM campaigns_job j JOIN campaigns_campaign c ON c.id = j.campaign_id JOIN vendors_vendor v ON v.id = j.vendor_id
    JOIN vendors_credential l ON l.id = j.credential_id LEFT JOIN campaigns_store s ON s.id = 1
    LEFT JOIN campaigns_identity i ON i.id = c.identity_id
WHERE j.id = %(job)s
"""


CAMPAIGN = f"SELECT {columns_of(Campaign, 'c')} FROM campaigns_campaign c WHERE id = %(campaign)s"


# Each of these reads once for each version of its rows, for all streams of the process.
@lru_cache(maxsize=64)
def _load_identity(identity_id: int, version: str) -> Identity:
    return Identity.objects.get(pk=identity_id)


@lru_cache(maxsize=16)
def _load_campaign(
    campaign_id: int, version: str, identity: int | None, of_identity: str, public_url: str
) -> tuple[Campaign, Any]:
    """Return the campaign and its compiled content.

    of_identity: the identity's version; public_url: templates are compiled for the length of its links.
    """
    (campaign,) = Campaign.objects.raw(CAMPAIGN, {"campaign": campaign_id})
    campaign.identity = _load_identity(identity, of_identity) if identity else None
    return campaign, ports.letters.compile_content(campaign)


class Outdated(Exception):
    """The rows have changed since their version was read."""


@lru_cache(maxsize=64)
def _load_login(vendor_id: int, credential_id: int, version: str) -> tuple[Vendor, int, bytes]:
    """Return the vendor, LeasedJob.destination and LeasedJob.connection_key.

    Raises Outdated if the rows have changed; the cache then keeps nothing.
    """
    used = RawSQL(USED.format(v="vendors_vendor", l="vendors_credential"), ())
    rows: Any = Credential.objects.select_related("vendor").annotate(used=used)
    login = rows.get(pk=credential_id, vendor=vendor_id)
    if login.used != version:
        raise Outdated
    destination = login.vendor.destination + login.destination
    return login.vendor, destination, orjson.dumps([login.vendor.adapter, login.vendor.settings, login.secret])


def _read_job_row(lease: Lease) -> tuple[tuple[Any, ...], tuple[Vendor, int, bytes]]:
    """Return the row of OF_JOB and the matching result of `_load_login`."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(OF_JOB, {"job": lease.job_id})
            row = cursor.fetchone()
        with suppress(Outdated):
            return row, _load_login(*row[-3:])


def load_leased_job(lease: Lease) -> LeasedJob:
    """Return the job with its content and adapter.

    Raises NoLinks, and the errors of the content or adapter if one of them cannot be made ready.
    """
    row, (vendor, destination, key) = _read_job_row(lease)
    first, end, begin, suppressions, mail_class, *written, vendor_id, credential_id, _ = row
    campaign, content = _load_campaign(*written, settings.PUBLIC_URL)
    name, its_settings, secret = orjson.loads(key)  # its own copy: no adapter can change another one's
    adapter = adapters.load(name).for_credential(its_settings, secret)
    ports.letters.check_vendor(campaign, content, vendor, adapter, range(first, end))
    letters = ports.letters.prepare_letters(campaign, content, vendor, adapter)
    asker = Asker(campaign.sponsor_id, vendor.channel, suppressions, campaign.topic_id, campaign.transactional)
    return LeasedJob(
        lease,
        first,
        end,
        begin,
        vendor_id,
        mail_class,
        credential_id,
        campaign,
        letters,
        adapter,
        destination,
        key,
        asker,
    )


async def letters_in_turn(job: LeasedJob, messages: Iterable[ClaimedMessage]) -> list[Letter | Refused]:
    """Make the letters one by one. After a slow one the event loop runs other tasks, such as the heartbeat."""
    letters = []
    for message in messages:
        began = time.monotonic()
        letters.append(job.letter(message))
        if time.monotonic() - began > LONG:
            await asyncio.sleep(0)
    return letters


def split_by_size(made: list[tuple[_Call, Letter | Outcome]]) -> list[list[tuple[_Call, Letter | Outcome]]]:
    """Split letters into calls of limited size, in order. A letter that is too large alone gets its own call."""
    if len(made) == 1:
        return [made]
    calls, size = [made[:1]], _letter_bytes(made[0][1])
    for one in made[1:]:
        size += (own := _letter_bytes(one[1]))
        if size > CALL_SIZE:
            calls.append([])
            size = own
        calls[-1].append(one)
    return calls


def _letter_bytes(letter: Letter | Outcome) -> int:
    if not isinstance(letter, Letter):
        return 0
    files = sum(len(one.content) for one in letter.attachments)
    return len(letter.body) + len(letter.text) + files * 4 // 3  # in base64
