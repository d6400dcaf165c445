"""Makes the campaign of a draft exactly once, even if several callers ask or a process is killed on the way.

The transaction that stores the campaign also links it to its draft. So a double click, a second window, a doubled task
and a lost answer all lead to one campaign.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.contrib.admin.models import ADDITION
from django.db.models import F
from django.utils import timezone

from campaigns.engine import failpoints
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.ports import NotEntitled
from campaigns.lists import intake
from campaigns.lists.drafts import checking, contents, keeping
from campaigns.lists.drafts.checking import FenceLost, Sign, claim_draft, unexpected_sentence
from campaigns.lists.drafts.keeping import (
    LIST,
    MESSAGE,
    WHEN,
    Closed,
    Stale,
    load_draft,
    open_drafts_condition,
    seen_revision,
)
from campaigns.lists.intake import At, BadInput, Hours, to_oneself
from campaigns.lists.intake.storage import PauseRules, check_times
from campaigns.models import Campaign, Draft, Job
from campaigns.models.states import Status
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import NewWork, QuotaRefusal, QuotaUse
from campaigns.texts.templates import TemplateError
from vendors import alarms
from vendors.history import Actor, record_changes
from vendors.said import Said, columns, gettext_noop

log = logging.getLogger(__name__)
SMALL = 20_000  # recipients stored in less than two seconds


def call_time(draft: Draft) -> At:
    """Return when its calls may start."""
    return draft.send_at if draft.when == "at" and draft.send_at else "nightly" if draft.when == "nightly" else "now"


def sending_obstacle(draft: Draft) -> str:
    """Return the obstacle to sending the draft, as a sentence; empty if it can be sent."""
    facts = draft.found
    if not draft.list_version:
        return Said("There is no list of recipients yet.")
    if facts is None:
        return Said("The list is being checked.") if draft.busy else Said("The list must be checked once more.")
    if not facts["good"]:
        return Said("No row of the list can be sent.")
    if facts["total"] and not draft.leave_out:
        one = gettext_noop("1 row of the list is bad: correct it, or leave it out.")
        many = gettext_noop("%(count)s rows of the list are bad: correct them, or leave them out.")
        return Said.count_form(one, many, count=facts["total"])
    return ""


def foresee_quotas(draft: Draft) -> list[QuotaRefusal | QuotaUse]:
    """Return the quotas' answer to sending the draft now: a refusal, or the quotas nearly used by it.

    Raises NotEntitled.
    """
    facts, when, login = draft.found or {"good": 0}, call_time(draft), contents.logins_of_draft(draft)[0]
    goes = facts["good"] - facts.get("suppressed", 0)
    starts_at = when if isinstance(when, datetime) else timezone.now()
    return admission.foresee_answers([NewWork(draft.sponsor_id, login.vendor_id, login.pk, goes, starts_at)])


def start_sending(draft: Draft, seen: str, values: Mapping[str, Any], user: Any) -> Draft:
    """Decide to send the draft as the page has shown it; `finish_sending` makes the campaign.

    Raises Stale, Closed, BadInput.
    """
    shown = draft.found
    draft = keeping.save(draft, WHEN, seen, values)
    if any(seen_revision(seen, part) != seen_revision(draft.seen, part) for part in (MESSAGE, LIST)):
        raise Stale(draft)
    if shown and draft.found is None and checking.is_small(draft):  # other hours may need other fields of the rows
        checking.check_draft(checking.ask_for_check(draft).pk)
        draft = load_draft(draft.pk)
    if why := sending_obstacle(draft):
        raise BadInput(why)
    if shown and draft.found and draft.found["good"] != shown["good"]:
        raise BadInput(Said("the list was checked once more since: look at the number of bad rows again"))
    check_times(call_time(draft), None, timezone.now())
    if within := contents.hours_of_draft(draft):
        within.check_fields(draft.channel, [one["field"] for one in (draft.found or {}).get("columns", ())])
    contents.content_of_draft(draft)
    if refused := next((one for one in foresee_quotas(draft) if isinstance(one, QuotaRefusal)), None):
        raise BadInput(refused.sentence)
    mine = Draft.objects.filter(open_drafts_condition(), pk=draft.pk, busy="")
    as_seen = mine.filter(
        message_revision=draft.message_revision,
        list_revision=draft.list_revision,
        when_revision=draft.when_revision,
    )
    sets = {"decided_by": user, "fence": F("fence") + 1, "lease_at": None, "percent": 0, **columns("failure", "")}
    if not as_seen.update(busy=Draft.SENDING, **sets):
        now = load_draft(draft.pk)
        raise Closed(now) if now.campaign_id or now.busy == Draft.SENDING else Stale(now)
    return load_draft(draft.pk)


def is_small(draft: Draft) -> bool:
    """Return True if the campaign can be stored while somebody waits for the page."""
    return len(contents.checked_recipients(draft)) <= SMALL


def finish_sending(draft_id: int) -> Job | None:
    """Make the campaign of a draft to be sent. None: another process does or has done so, or the draft was refused."""
    fence = claim_draft(draft_id, Draft.SENDING)
    if fence is None:
        return None
    draft, sign = load_draft(draft_id), Sign(draft_id, Draft.SENDING, fence)

    def join_campaign(campaign: Campaign) -> None:
        if not sign.held.update(campaign=campaign, busy="", lease_at=None, updated_at=timezone.now()):
            raise FenceLost
        _record_campaign(draft, campaign, _made_of(draft))

    try:
        rows = contents.checked_recipients(draft).spool_rows(sign)
        job = _accept_draft(draft, rows, join_campaign, draft.name, call_time(draft), contents.hours_of_draft(draft))
    except FenceLost:
        return None
    except (BadInput, TemplateError, NotEntitled) as error:
        sign.held.update(busy="", lease_at=None, **columns("failure", str(error), None))
        return None
    except Exception as error:  # an uncaught error would be tried again for ever, and nobody would be told
        alarms.DRAFT_NOT_SENT.log(log, draft_id, exc_info=True)
        sign.held.update(busy="", lease_at=None, **columns("failure", unexpected_sentence(error), None))
        return None
    _dispatch_now(job)
    return job


def _made_of(draft: Draft) -> Said:
    """Return the sentence for the record; with a note if the campaign is past its chosen time and goes immediately."""
    when, now = call_time(draft), timezone.now()
    if not isinstance(when, datetime) or when > now:
        return Said(gettext_noop("made it of draft %(draft)s"), draft=str(draft.pk))
    # rows of earlier versions keep this form
    gettext_noop("made it of draft %(draft)s; stored at %(time)s UTC, after its time, so it goes at once")
    return Said(
        gettext_noop("made it of draft %(draft)s; stored after its time, so it goes at once"), draft=str(draft.pk)
    )  # fmt: skip


def _accept_draft(
    draft: Draft,
    recipients: intake.Recipients,
    joined: Callable[[Campaign], None],
    name: str,
    when: At,
    within: Hours | None,
    by: Any = None,
) -> Job:
    """Store the campaign. by: the user, if it is a test to oneself."""
    test = by is not None
    maker = by or draft.decided_by
    content, logins = contents.content_of_draft(draft), contents.logins_of_draft(draft)
    identity = contents.identity_of_draft(draft, logins[0].vendor)
    return intake.store_campaign(
        sponsor=draft.sponsor,
        credential=logins[0],
        name=name[:200],
        subject=content.subject,
        body=content.body,
        html=content.html,
        text=content.text,
        headers=content.headers,
        files=content.files,
        template_version=content.version,
        recipients=recipients,
        at=when,
        hours=within,
        identity=identity.name if identity else "",
        topic=draft.topic.name if draft.topic else "",
        transactional=draft.transactional,
        mail_class=draft.mail_class,
        by=Actor(maker.get_username(), maker.pk) if maker else None,
        to_oneself=test,
        times_checked=True,
        pauses=PauseRules(None if test else draft.first),
        route=None if test else draft.route,
        progress=lambda stored: failpoints.here("mid_store"),
        joined=joined,
    )


def send_test(draft: Draft, address: str, number: int, tests: int, user: Any) -> Job | None:
    """Send recipient `number`'s letter, counted from 1, to the user's own address now.

    tests: Draft.tests as the page has shown it. Returns None if this test was sent already. Raises TemplateError,
    NotEntitled, and BadInput, also above the hourly limit.
    """
    if draft.tests != tests:
        return None
    normal = intake.AddressReader(draft.channel, draft.sponsor.phone_region, is_for_sending=True)
    rows = contents.checked_recipients(draft).since(number - 1)
    oneself = to_oneself.address_first_letter(address, rows, normal, contents.content_of_draft(draft).compiled)
    mine = Draft.objects.filter(open_drafts_condition(), pk=draft.pk, tests=tests)

    def count_test(campaign: Campaign) -> None:
        if not mine.update(tests=F("tests") + 1):
            raise FenceLost
        _record_campaign(draft, campaign, Said(gettext_noop("a test of draft %(draft)s"), draft=str(draft.pk)), user)

    try:
        job = _accept_draft(draft, oneself, count_test, f"{to_oneself.NAME}{draft.name}", "now", None, user)
    except FenceLost:
        return None
    _dispatch_now(job)
    return job


def _record_campaign(draft: Draft, campaign: Campaign, what: str, user: Any = None) -> None:
    user = user or draft.decided_by
    actor = Actor(user.get_username(), user.pk) if user else Actor("somebody")
    record_changes(actor, Campaign, [(campaign.pk, what)], flag=ADDITION)


def _dispatch_now(job: Job) -> None:
    """Dispatch the job; if this is lost, the sweep does it."""
    if job.status == Status.READY:
        dispatcher.dispatch_ready([job.pk])
        dispatcher.notify_vendors([job.vendor_id])
        job.refresh_from_db()
