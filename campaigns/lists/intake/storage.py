"""Stores a campaign, its messages and its job together or not at all; parses and checks times.

Functions raise BadInput for values they cannot accept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

import orjson
from django.db import connection, transaction
from django.utils import timezone

from campaigns.approvals import approval_rules
from campaigns.lists.intake import files as file_storage
from campaigns.lists.intake import to_oneself as letters_to_oneself
from campaigns.lists.intake.files import CampaignFiles
from campaigns.lists.intake.hours import Hours
from campaigns.models import Campaign, Job, Route, Sponsor, Suppression, TemplateVersion
from campaigns.models.campaigns import needs_approval
from campaigns.models.jobs import new_uuids
from campaigns.models.states import Status
from campaigns.senders import entitlements
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import NewWork
from campaigns.suppression.comparing import end_suppressed
from campaigns.texts.bad_input import BadInput
from vendors.history import Actor
from vendors.instants import convert_to_utc, parse_iso_time
from vendors.models import Credential
from vendors.said import Said, gettext_noop

FARTHEST = timedelta(days=3653)  # ten years
At = Literal["nightly", "now"] | datetime


@dataclass(frozen=True, slots=True)
class PauseRules:
    """The points at which a campaign pauses for a decision.

    first: number of recipients after which it waits (None or all of them: it does not). Limits are in percent; None:
    the installation's.
    """

    first: int | None = None
    bounce_limit: float | None = None
    complaint_limit: float | None = None

    def __post_init__(self) -> None:
        if self.first is not None and self.first < 1:
            raise BadInput(Said("the number of first recipients must be 1 or more"))
        for name, limit in (("bounce", self.bounce_limit), ("complaint", self.complaint_limit)):
            if limit is not None and not 0 <= limit <= 100:
                raise BadInput(Said("the %(name)s limit is a percentage from 0 to 100; 0 means none", name=name))

    def wait_after(self, size: int) -> int | None:
        """Return Job.wait_after for a campaign of that size."""
        return self.first if self.first and self.first < size else None


NO_RULES = PauseRules()


SEND_AT = "the time to send at,"
PAST = {SEND_AT: gettext_noop("the time to send at, %(when)s is past")}
FAR = {SEND_AT: gettext_noop("the time to send at, %(when)s is more than ten years ahead")}


def parse_at(text: str) -> At:
    """Parse `nightly`, `now` or an ISO 8601 time with its zone. Raises BadInput."""
    if text == "nightly":
        return "nightly"
    if text == "now":
        return "now"
    return parse_moment(text, "--at")


def parse_moment(text: str, what: str) -> datetime:
    """Parse an ISO 8601 time. what: names the value in the error. Raises BadInput."""
    try:
        found = parse_iso_time(text)
        return convert_to_utc(found) if found.tzinfo else found
    except ValueError as error:
        why = gettext_noop("%(what)s %(text)s is not a time; write it like 2030-01-31T18:00:00+00:00")
        raise BadInput(Said(why, what=what, text=repr(text))) from error


def check_moment(moment: datetime, what: str, now: datetime) -> None:
    """Raise BadInput unless the moment has a zone, is in the future and within ten years."""
    if moment.tzinfo is None:
        why = gettext_noop("%(what)s %(when)s has no time zone; add one, like %(when)s+00:00")
        raise BadInput(Said(why, what=what, when=moment.isoformat()))
    if moment <= now:
        past = PAST.get(what) or gettext_noop("%(what)s %(when)s is past")
        raise BadInput(Said(past, what=what, when=moment.isoformat()))
    if moment > now + FARTHEST:
        far = FAR.get(what) or gettext_noop("%(what)s %(when)s is more than ten years ahead")
        raise BadInput(Said(far, what=what, when=moment.isoformat()))


def check_times(at: At, deadline: datetime | None, now: datetime) -> None:
    """Raise BadInput unless both times are possible and the deadline is the later one."""
    if isinstance(at, datetime):
        check_moment(at, SEND_AT, now)
    if deadline is not None:
        check_moment(deadline, "the deadline", now)
        if isinstance(at, datetime) and deadline <= at:
            raise BadInput(Said("the deadline is not after the time to send at"))


BLOCK_ROWS = 2_000
LONG = 10_000  # recipients of a list that takes a while to be stored
MOST_RECIPIENTS = 2_000_000_000  # limit of a size column
COPY = "COPY campaigns_message (id, uuid, campaign_id, recipient, params) FROM STDIN"


class Recipients(Protocol):
    """Checked recipients with their fields: a list of pairs, or a CheckedTable."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, Any]]]: ...


def store_campaign(
    *,
    sponsor: Sponsor,
    credential: Credential,
    name: str,
    subject: str,
    body: str,
    html: bool,
    text: str = "",
    headers: Sequence[tuple[str, str]] = (),
    files: CampaignFiles | None = None,
    recipients: Recipients,
    at: At = "nightly",
    hours: Hours | None = None,
    deadline: datetime | None = None,
    identity: str = "",
    topic: str = "",
    transactional: bool = False,
    mail_class: int | None = None,
    pauses: PauseRules = NO_RULES,
    route: Route | None = None,
    by: Actor | None = None,
    without_approval: bool = False,
    to_oneself: bool = False,
    times_checked: bool = False,
    template_version: TemplateVersion | None = None,
    progress: Callable[[int], None] = lambda stored: None,
    joined: Callable[[Campaign], None] = lambda campaign: None,
) -> Job:
    """Store a campaign and return its job: RENDERED if it waits for the night, else READY (document 000).

    Messages to suppressed recipients are stored as suppressed, and the job counts them. For `now`, call
    dispatcher.dispatch_ready with the job afterwards. A new sponsor is stored with the campaign.

    - by: the user or key named as its maker. If the sponsor demands another person's approval, it is stored paused.
    - without_approval: for answers to HELP, each to one recipient who asked for it.
    - to_oneself: a letter to oneself, which needs no approval; their number is limited (intake/to_oneself.py).
    - times_checked: check_times passed at the user's decision; a time to send at that has passed by now means
      immediately.
    - identity: the name of one of the sponsor's; empty: its default. topic: one of the sponsor's; empty: none.
    - transactional: the sponsor may mark it so. route: starts with the credential. template_version: of this content.
    - mail_class: a MailClass; None: the template's, else by its kind (entitlements.decide_class).
    - joined: stores more in the campaign's transaction, before the messages.

    Recipients, templates, headers and files must have been checked (checking.check, templates.compile_templates,
    content.parts).

    Raises BadInput for impossible times, texts or sizes, and entitlements.NotEntitled. After any error, including one
    raised by `joined`, nothing is stored.
    """
    if not times_checked:
        check_times(at, deadline, timezone.now())
    _check_texts(name, subject, body, text)
    size = len(recipients)
    first = allocate_ids(size)
    kept = file_storage.keep_all(files) if files else []
    if sponsor.pk and size >= LONG:
        _require_quota(sponsor, credential, size, at)
    with transaction.atomic():
        if sponsor.pk is None:
            sponsor.save()
        entitlements.require_entitlement(sponsor, credential)
        if mail_class is None and template_version is not None:
            mail_class = template_version.template.mail_class
        decided = entitlements.class_for(sponsor, credential, mail_class, size, transactional=transactional)
        campaign = Campaign.objects.create(
            sponsor=sponsor,
            credential=credential,
            identity=entitlements.choose_identity_for(sponsor, credential.vendor, identity),
            topic=entitlements.choose_topic(sponsor, topic, transactional),
            transactional=transactional,
            mail_class=decided,
            route=route,
            routed=route is not None,
            template_version=template_version,
            name=name,
            subject=subject,
            body=body,
            html=html,
            text=text,
            headers=[list(one) for one in headers] or None,
            file_fields=list(files.fields) or None if files else None,
            has_files=files is not None,
            first_message=first,
            size=size,
            send_at=at if isinstance(at, datetime) else None,
            **(hours.columns if hours else {}),
            deadline=deadline,
            bounce_limit=pauses.bounce_limit,
            complaint_limit=pauses.complaint_limit,
            made_by=by.name[:150] if by else "",
            to_oneself=to_oneself,
        )
        joined(campaign)
        _copy_messages(campaign, recipients, progress)
        if hours:
            hours.check_fields(credential.vendor.channel, campaign.columns or ())
        campaign.save(update_fields=["columns"])
        if files:
            file_storage.name_kept_files(campaign.pk, kept)
        job = Job.objects.create(
            campaign=campaign,
            sponsor=sponsor,
            vendor_id=credential.vendor_id,
            credential=credential,
            mail_class=decided,
            status=Status.RENDERED if at == "nightly" else Status.READY,
            not_before=campaign.send_at,
            first_message=first,
            size=size,
            wait_after=pauses.wait_after(size),
        )
        end_suppressed(job)
        _ask_approval(job, by, without_approval or to_oneself)
        if to_oneself:
            _count_to_oneself(job, by)
        _admit_to_quotas(job)
        return job


def _require_quota(sponsor: Sponsor, credential: Credential, size: int, at: At) -> None:
    """Refuse a long list before it is stored, unless some of its recipients may be suppressed. Raises BadInput."""
    starts_at = at if isinstance(at, datetime) else timezone.now()
    work = NewWork(sponsor.pk, credential.vendor_id, credential.pk, size, starts_at)
    refusal = admission.find_quota_refusal(work)
    if refusal and not Suppression.objects.exists():
        raise BadInput(refusal.sentence)


def _admit_to_quotas(job: Job) -> None:
    """Ask the quotas last, so that nobody waits for the storing of a list. Raises BadInput."""
    work = NewWork(
        job.sponsor_id,
        job.vendor_id,
        job.credential_id,
        job.size - job.suppressed,
        job.not_before or timezone.now(),
    )
    with connection.cursor() as cursor:
        refusal = admission.admit_all(cursor, [work], is_counted=True)[0]
    if refusal:
        raise BadInput(refusal.sentence)


def _count_to_oneself(job: Job, by: Actor | None) -> None:
    if by is None:
        raise BadInput(Said("it must be known who sends a letter to oneself"))
    with connection.cursor() as cursor:
        letters_to_oneself.count_letter(cursor, job.pk)


def _ask_approval(job: Job, by: Actor | None, without: bool) -> None:
    if without and job.size > 1:
        raise BadInput(Said("a letter that needs no approval has one recipient, not %(count)s", count=job.size))
    above = Sponsor.objects.values_list("approval_above", flat=True).get(pk=job.sponsor_id)
    if without or not needs_approval(above, job.size):
        return
    if by is None:
        raise BadInput(
            Said(
                "campaigns of %(sponsor)s wait for approval, so it must be known who asks for this one",
                sponsor=job.sponsor,
            )
        )
    with connection.cursor() as cursor:
        approval_rules.ask_for_approval(cursor, {job.pk: approval_rules.Party.of(by)})
    job.refresh_from_db()
    job.campaign.refresh_from_db()


def allocate_ids(size: int) -> int:
    """Reserve a block of that many message ids and return the first. Raises BadInput for an impossible size.

    It has a transaction of its own, so that the lock is not held while the messages are stored. An unused block is
    harmless.
    """
    if not 1 <= size <= MOST_RECIPIENTS:
        raise BadInput(
            Said("there are no recipients") if size < 1 else Said("%(count)s recipients are too many", count=size)
        )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('campaigns_message_block'))")
        cursor.execute("SELECT setval('campaigns_message_block', nextval('campaigns_message_block') + %s - 1)", [size])
        last: int = cursor.fetchone()[0]
        return last - size + 1


def _check_texts(name: str, subject: str, body: str, beside: str) -> None:
    longest = Campaign._meta.get_field("name").max_length or 0
    if not name or len(name) > longest:
        raise BadInput(Said("the campaign's name must have 1 to %(most)s characters", most=str(longest)))
    for what, text in (("name", name), ("subject", subject), ("body", body), ("text", beside)):
        if "\0" in text:
            raise BadInput(Said("the %(what)s has a NUL character in it", what=what))


def _copy_messages(campaign: Campaign, recipients: Recipients, progress: Callable[[int], None]) -> None:
    stored = 0
    with connection.cursor() as cursor, cursor.copy(COPY) as copy:
        for block, rows in _copy_blocks(campaign, recipients):
            copy.write(block)
            stored += rows
            progress(stored)
    if stored != campaign.size:
        raise BadInput(
            Said(
                "recipients when they were checked: %(count)s, and after that: %(stored)s",
                count=campaign.size,
                stored=stored,
            )
        )


def _copy_blocks(campaign: Campaign, recipients: Recipients) -> Iterator[tuple[bytes, int]]:
    """Yield lines in the text format of PostgreSQL's COPY, with their number."""
    lines: list[bytes] = []
    # one more, so that an extra recipient is noticed
    ids = range(campaign.first_message, campaign.first_message + campaign.size + 1)
    for id, uuid, (recipient, fields) in zip(ids, new_uuids(ids), recipients, strict=False):
        if id == campaign.first_message:
            campaign.columns = list(fields)  # the table does not keep their order
        params = orjson.dumps(fields).replace(b"\\", b"\\\\")  # the only character of JSON that COPY would interpret
        lines.append(b"%d\t%b\t%d\t%b\t%b\n" % (id, uuid, campaign.pk, _escape_for_copy(recipient), params))
        if len(lines) == BLOCK_ROWS:
            yield b"".join(lines), len(lines)
            lines = []
    if lines:
        yield b"".join(lines), len(lines)


def _escape_for_copy(text: str) -> bytes:
    if text.isprintable() and "\\" not in text:
        return text.encode()
    text = text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return text.encode()
