"""A checked request to send: its content, the vendors it may use, and the answer for the client."""

import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from campaigns.doors.front.keys import Caller, find_maker
from campaigns.doors.front.session_links import session_links, session_name
from campaigns.doors.front.vendor_cache import VendorSnapshot
from campaigns.lists.api.contents import BesideBody
from campaigns.lists.intake import Hours, allocate_ids
from campaigns.lists.intake.requests import Request
from campaigns.lists.intake.storage import PauseRules
from campaigns.reporting.api.forecasts import Forecast, condition_facts, forecasts
from campaigns.senders.entitlements import decide_class
from vendors.mail_classes import MailClass

BLOCK = 5_000  # message ids that a process allocates in one step, so that few requests wait for it


@dataclass(frozen=True, slots=True)
class SendOrder:
    """A checked request. `vendors`: those it may use, by preference. `send_at`: only if it is in the future."""

    caller: Caller
    vendors: Sequence[VendorSnapshot]
    idempotency_key: str
    fingerprint: bytes
    name: str
    subject: str
    body: str
    html: bool
    text: str
    beside: BesideBody
    recipients: Sequence[tuple[str, dict[str, Any]]]
    left_out: Sequence[dict[str, str]]
    preview: Sequence[dict[str, Any]]
    printed: dict[str, Any] | None
    cost: dict[str, Any] | None
    references: Sequence[str | None] | None
    metadata: dict[str, str]
    send_at: datetime | None
    deadline: datetime | None
    hours: Hours | None
    identity_id: int | None
    route_id: int | None
    template_version_id: int | None
    topic_id: int | None
    transactional: bool
    named_class: int | None
    pauses: PauseRules
    needs_approval: bool
    to_oneself: bool

    @property
    def size(self) -> int:
        return len(self.recipients)

    @property
    def key_mode(self) -> str:
        return "test" if self.caller.test else "live"

    def answer(
        self, session: UUID | None, vendor: VendorSnapshot, forecast: Forecast, quotas: Sequence[str] = ()
    ) -> str:
        """Return the JSON answer. `session` is None for a dry run. `quotas`: what they would say to it."""
        facts = {
            "id": session and session_name(session),
            "status": "valid" if session is None else self._initial_status(vendor),
            "condition": condition_facts(forecasts.condition_of(vendor), vendor.disclosed),
            "accepted": self.size,
            "left_out": self.left_out,
            "preview": self.preview,
            "printed": self.printed,
            "vendor": vendor.slug,
            "mail_class": self.mail_class(vendor).word,
            "mode": self.key_mode,
            "forecast": forecast,
            "cost": self.cost,
            "quotas": quotas,
            "approval": "waiting" if self.needs_approval else None,
            "links": session and session_links(session),
        }
        return orjson.dumps(facts).decode()

    def mail_class(self, vendor: VendorSnapshot) -> MailClass:
        """Return the class over this vendor. Raises NotEntitled."""
        return decide_class(
            self.named_class, self.size, vendor.urgent, vendor.slug, transactional=self.transactional, by_program=True
        )

    def _initial_status(self, vendor: VendorSnapshot) -> str:
        if self.send_at:
            return "scheduled"
        return "paused" if self.needs_approval or forecasts.is_paused(vendor) else "waiting"

    def make_request(self, vendor: VendorSnapshot, forecast: Forecast) -> Request:
        """Return the request to store, with a new session and message ids. Raises django.db's errors."""
        session = new_session()
        assert vendor.credential_id is not None, "a vendor without a credential is paused"
        return Request(
            session=session,
            sponsor_id=self.caller.sponsor_id,
            test=self.caller.test,
            key_prefix=self.caller.prefix,
            idempotency_key=self.idempotency_key,
            fingerprint=self.fingerprint,
            answer=self.answer(session, vendor, forecast),
            vendor_id=vendor.id,
            channel=vendor.channel,
            credential_id=vendor.credential_id,
            small=self.size < vendor.small_below,
            name=self.name,
            subject=self.subject,
            body=self.body,
            html=self.html,
            text=self.text,
            headers=self.beside.headers,
            files=self.beside.files,
            first_message=message_ids.take_ids(self.size),
            recipients=self.recipients,
            references=self.references,
            metadata=self.metadata,
            send_at=self.send_at,
            deadline=self.deadline,
            hours=self.hours,
            identity_id=self.identity_id,
            route_id=self.route_id,
            template_version_id=self.template_version_id,
            topic_id=self.topic_id,
            transactional=self.transactional,
            mail_class=self.mail_class(vendor),
            pauses=self.pauses,
            needs_approval=self.needs_approval,
            to_oneself=self.to_oneself,
            key_maker=find_maker(self.caller.key_id) if self.needs_approval else None,
        )


def new_session() -> UUID:
    """Return a UUID of version 7. It is ordered by time, so the index grows at its end."""
    stamp = time.time_ns() // 1_000_000
    noise = secrets.randbits(74)
    return UUID(int=stamp << 80 | 0x7 << 76 | (noise >> 62) << 64 | 0b10 << 62 | noise & ((1 << 62) - 1))


class Blocks:
    """Allocates message ids from the sequence in blocks of BLOCK. Ids left over at the end stay unused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = self._end = 0
        os.register_at_fork(after_in_child=self._forget_block)

    def take_ids(self, size: int) -> int:
        """Return the first of `size` consecutive ids. Raises django.db's errors when a new block is needed."""
        with self._lock:
            if self._end - self._next < size:
                self._next = allocate_ids(max(size, BLOCK))
                self._end = self._next + max(size, BLOCK)
            first = self._next
            self._next += size
            return first

    def _forget_block(self) -> None:
        self._lock = threading.Lock()
        self._next = self._end = 0


message_ids = Blocks()
