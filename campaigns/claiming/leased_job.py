"""All that a sender needs of a job, read once: whose it is, its slice, its content, its adapter."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from campaigns.claiming.claims import ClaimedMessage, Lease
from campaigns.content import templates
from campaigns.models import Campaign, Job
from vendors import adapters
from vendors.adapters.base import Adapter, Letter
from vendors.outcomes import Refused

LONG = 0.001  # seconds


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A leaf job in the hands of one sender."""

    lease: Lease
    first: int
    end: int
    vendor_id: int
    credential_id: int
    campaign: Campaign
    content: templates.Content
    adapter: Adapter
    way: bytes  # what the adapter was made from: the same way, the same connections

    @property
    def deadline(self) -> datetime | None:
        return self.campaign.deadline

    def letter(self, message: ClaimedMessage) -> Letter | Refused:
        """The message as the vendor gets it; Refused if its template cannot be filled with its fields."""
        try:
            subject, body = self.content.render(message.recipient, message.params)
        except templates.TemplateError as error:
            return Refused("template", str(error))
        html = self.campaign.html
        return Letter(message.reference, message.recipient, subject, body, message.params, html)


async def letters_in_turn(work: LeasedJob, messages: Iterable[ClaimedMessage]) -> list[Letter | Refused]:
    """Each as `LeasedJob.letter`; after one that took long, others have their turn, the heartbeat above all."""
    letters = []
    for message in messages:
        began = time.monotonic()
        letters.append(work.letter(message))
        if time.monotonic() - began > LONG:
            await asyncio.sleep(0)
    return letters


def load(lease: Lease) -> LeasedJob:
    """Raises what the adapter or the template says if one of them cannot be made ready."""
    job: Any = Job.objects.select_related("campaign", "vendor", "credential").get(pk=lease.job_id)
    adapter = adapters.load(job.vendor.adapter)(job.vendor.settings, job.credential.secret)
    content = templates.compile(job.campaign.subject, job.campaign.body, html=job.campaign.html)
    vendor, login = job.vendor, job.credential
    way = orjson.dumps([vendor.adapter, vendor.settings, login.secret])
    return LeasedJob(lease, job.first_message, job.end, vendor.pk, login.pk, job.campaign, content, adapter, way)
