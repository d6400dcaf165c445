"""Reasons why messages of a campaign failed: counts, and sentences for the owner.

A reason has a key, computed from a row by the same rules in counts and in lists of recipients. It names the event; the
cause stored with the message says who is at fault. Sentences quote vendors' codes but not their texts, which may name a
recipient.
"""

import re
from collections import Counter
from dataclasses import dataclass

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from campaigns.doors import labels
from campaigns.engine.progress import Progress
from campaigns.models import Campaign, Job, Message, MessageEvent, ReportKind, Suppression
from campaigns.models.message_events import BOUNCES
from campaigns.models.states import OWN_ENDS
from campaigns.reporting.forecast import kept_totals
from campaigns.suppression.refused import reason_of
from vendors.adapters.letter_faults import PART_SENTENCES, UNSENDABLE, LetterPart, part_of_refusal
from vendors.causes import AnswerCause
from vendors.causes.gone import STOPPED, UNKNOWN
from vendors.models import Vendor

MOST = 100_000  # failed messages to count
MOST_REASONS = 30  # shown
KINDS = MessageEvent.Kind
VENDOR, LATER = "vendor:", "bounced:"  # prefixes: followed by the vendor's code; by the kind of the bounce
SUPPRESSED = "suppressed:"  # prefix, followed by the reason
UNMADE = f"{UNSENDABLE}:"  # prefix, followed by the part of the letter at fault

EMAIL, SMS, PRINT = Vendor.Channel.EMAIL, Vendor.Channel.SMS, Vendor.Channel.PRINT
UNKNOWN_TO = {
    EMAIL: gettext_noop("There is no mailbox at this address."),
    SMS: gettext_noop("There is no such number, or it takes no messages."),
    PRINT: gettext_noop("There is no such postal address."),
}
SENTENCES = {
    "expired": gettext_noop("It was not sent before its deadline."),
    "person": gettext_noop("Somebody has settled it as not sent."),
    "template": gettext_noop("The message could not be made from the recipient's fields."),
    UNSENDABLE: gettext_noop("The message could not be made for the vendor."),
    **{UNMADE + part: sentence for part, sentence in PART_SENTENCES.items()},
    "too_dear": gettext_noop("It would cost more than the vendor's limit allows."),
    "stop": gettext_noop("The recipient has told the vendor to stop."),
    "full": gettext_noop("The mailbox is full."),
    "disabled": gettext_noop("The mailbox is not in use any more."),
    "too_large": gettext_noop("The message is too large for the mailbox."),
    SUPPRESSED + Suppression.Reason.UNSUBSCRIBED: gettext_noop("The recipient has unsubscribed."),
    SUPPRESSED + Suppression.Reason.BOUNCED: gettext_noop("An earlier message came back: the address does not exist."),
    SUPPRESSED + Suppression.Reason.COMPLAINED: gettext_noop("The recipient has called an earlier message spam."),
    SUPPRESSED + Suppression.Reason.STOP: gettext_noop("The recipient has answered STOP."),
    SUPPRESSED + Suppression.Reason.BY_HAND: gettext_noop("Somebody has said not to write to it any more."),
    LATER + KINDS.HARD_BOUNCE: gettext_noop("It came back: the address does not exist."),
    LATER + KINDS.SOFT_BOUNCE: gettext_noop("It came back: it could not be delivered this time."),
    LATER + KINDS.BLOCKED: gettext_noop("It was blocked because of its sender or its content."),
    LATER + KINDS.FAILED: gettext_noop("The vendor took it, and has given it up."),
    LATER: gettext_noop("It came back; why is not known any more."),
    "in_doubt": gettext_noop("The vendor's answer was lost: nobody knows yet whether it was sent."),
}
# A vendor's refusal and a bounce, by the stored cause. Messages without one have the sentences without it.
REFUSED_BY = {
    AnswerCause.RECIPIENT: gettext_noop("The vendor has refused it because of the recipient, with its code %(code)s."),
    AnswerCause.CONTENT: gettext_noop("The vendor has refused it because of its content, with its code %(code)s."),
    AnswerCause.US: gettext_noop("The vendor has refused it because of our account or sender, with its code %(code)s."),
    AnswerCause.CAPACITY: gettext_noop("The vendor has refused it because of a limit of ours, with its code %(code)s."),
    AnswerCause.VENDOR: gettext_noop("The vendor was out of order and has refused it, with its code %(code)s."),
}
CAME_BACK_BY = {
    AnswerCause.RECIPIENT: gettext_noop("It came back because of the recipient."),
    AnswerCause.CONTENT: gettext_noop("It came back because of its content."),
    AnswerCause.US: gettext_noop("It came back because of our account or sender."),
    AnswerCause.CAPACITY: gettext_noop("It came back because of a limit of ours."),
    AnswerCause.VENDOR: gettext_noop("It came back because a mail server was out of order."),
}
NEVER_AGAIN = ("unknown", "stop")  # a retry leaves these out until a person allows them
OURS = ("expired", "person", "template", UNSENDABLE, "too_dear")  # codes that also serve as keys
SUB_TYPES = {"full": r"^5\.2\.2", "disabled": r"^5\.2\.1", "too_large": r"^5\.(3\.4|2\.3)"}
OF_PART = f"^({'|'.join(LetterPart)}): "  # begins the sub type of a letter that could not be made
# For groups g(code, sub): the first match counts. `failed_for_reason` expresses the same for a query set.
KEY = f"""CASE WHEN code = '{UNSENDABLE}' AND sub ~ '{OF_PART}' THEN '{UNMADE}' || split_part(sub, ': ', 1)
    WHEN code = ANY(ARRAY{list(OURS)}) THEN code
    WHEN code = 'suppressed' THEN '{SUPPRESSED}' || coalesce(sub, '')
    WHEN code ~* %(stop)s OR coalesce(sub ~* %(stop)s, false) THEN 'stop'
    WHEN code ~* %(unknown)s OR coalesce(sub ~* %(unknown)s, false) THEN 'unknown'
    {" ".join(f"WHEN sub ~ '{form}' THEN '{key}'" for key, form in SUB_TYPES.items())}
    ELSE '{VENDOR}' || code END"""
FAILED = f"""
SELECT {KEY} AS key, cause, sum(n)::bigint FROM (
    SELECT m.error_code AS code, m.error_sub_type AS sub, m.cause, count(*) AS n FROM (
        SELECT error_code, error_sub_type, cause FROM campaigns_message
        WHERE id >= %(first)s AND id < %(end)s AND error_code IS NOT NULL ORDER BY id LIMIT %(most)s
    ) m GROUP BY 1, 2, 3
) g GROUP BY 1, 2
"""
# The last event of each message with the state bounced. A later delivery cancels a bounce.
BOUNCED = """
SELECT last.kind, last.cause, count(*) FROM (
    SELECT DISTINCT ON (e.message_id) e.message_id, e.kind, m.cause FROM (
        SELECT id, message_id, resend_no, kind FROM campaigns_messageevent
        WHERE campaign_id = %(campaign)s AND kind = ANY(%(kinds)s)
            AND message_id >= %(first)s AND message_id < %(end)s LIMIT %(most)s
    ) e JOIN campaigns_message m ON m.id = e.message_id AND m.report = 'bounced' AND m.report_no = e.resend_no
    ORDER BY e.message_id, e.id DESC
) last GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class FailureReason:
    """The number of a campaign's messages that failed for one reason. state: their label.

    causes: how many of them have which AnswerCause; messages from before mailhub stored it have none.
    """

    key: str
    state: str
    sentence: str
    messages: int
    causes: dict[str, int]


def reasons_of_campaign(campaign: Campaign, channel: str, sums: Progress) -> list[FailureReason]:
    """Return the reasons, most frequent first.

    sums: of the campaign. If it has more than MOST failures, only the first ones are counted.
    """
    return _reasons_of_messages(
        campaign.pk, range(campaign.first_message, campaign.first_message + campaign.size), channel, sums
    )


def reasons_of_job(job: Job, sums: Progress) -> list[FailureReason]:
    """Return the reasons for a job, and for a parent also those of its children; as of_campaign."""
    return _reasons_of_messages(job.campaign_id, range(job.first_message, job.end), job.vendor.channel, sums)


def _reasons_of_messages(campaign_id: int, ids: range, channel: str, sums: Progress) -> list[FailureReason]:
    """Return the reasons for the messages with these ids."""
    counts: Counter[tuple[str, str]] = Counter()  # by key and cause
    block = {"first": ids.start, "end": ids.stop, "most": MOST}
    if failures := sums.refused + sums.expired + sums.suppressed:
        asked = [ids.start, ids.stop, sums.refused, sums.expired, sums.suppressed]
        rows = kept_totals.kept_counts(
            "failures", asked, lambda: _failed_counts(block), lambda _: failures > kept_totals.MANY
        )
        counts |= {(key, cause or ""): count for key, cause, count in rows}
    with connection.cursor() as cursor:
        if sums.bounced:
            kinds = [kind.value for kind in BOUNCES]
            cursor.execute(BOUNCED, {"campaign": campaign_id, "kinds": kinds, **block})
            events = {(LATER + kind, cause or ""): count for kind, cause, count in cursor.fetchall()}
            counts |= events | {(LATER, ""): max(0, sums.bounced - sum(events.values()))}
    counts["in_doubt", ""] = sums.in_doubt
    causes: dict[str, dict[str, int]] = {}
    for (key, cause), count in counts.items():
        if count:
            causes.setdefault(key, {})[cause] = count
    found = [_make_reason(key, channel, by_cause) for key, by_cause in causes.items()]
    return sorted(found, key=lambda one: (-one.messages, one.key))[:MOST_REASONS]


def _failed_counts(block: dict[str, int]) -> list[tuple[str, str | None, int]]:
    with connection.cursor() as cursor:
        cursor.execute(FAILED, {"stop": STOPPED, "unknown": UNKNOWN, **block})
        return list(cursor.fetchall())


def _make_reason(key: str, channel: str, by_cause: dict[str, int]) -> FailureReason:
    known = dict(sorted((cause, count) for cause, count in by_cause.items() if cause))
    of_all = next(iter(by_cause)) if len(by_cause) == 1 else ""
    return FailureReason(key, _label_of_key(key), reason_sentence(key, channel, of_all), sum(by_cause.values()), known)


def reason_sentence(key: str, channel: str, cause: str = "") -> str:
    """Return the sentence for a key. cause: the AnswerCause of all these messages, if it is one."""
    if key == "unknown":
        return _(UNKNOWN_TO.get(Vendor.Channel(channel), UNKNOWN_TO[EMAIL]))
    if known := SENTENCES.get(key):
        return _(known)
    if key.startswith(SUPPRESSED):
        return _(SENTENCES[SUPPRESSED + Suppression.Reason.BY_HAND])
    form = REFUSED_BY.get(AnswerCause(cause)) if cause else None
    code = {"code": key.removeprefix(VENDOR)}
    return _(form) % code if form else _("The vendor has refused it, with its code %(code)s.") % code


def _label_of_key(key: str) -> str:
    if key == "in_doubt":
        return labels.ATTENTION
    if key.startswith(LATER):
        return labels.BOUNCED
    return labels.SUPPRESSED if key.startswith(SUPPRESSED) else labels.EXPIRED if key == "expired" else labels.FAILED


def key_of(message: Message) -> str:
    """Return a message's key; empty: it has not failed. For a bounce, the key leaves out the kind."""
    code, sub = message.error_code, message.error_sub_type or ""
    if message.report == ReportKind.BOUNCED:
        return LATER
    if message.in_doubt_at:
        return "in_doubt"
    if code is None or message.message_id is not None:
        return ""
    if part := part_of_refusal(code, sub):
        return UNMADE + part
    if code in OURS:
        return code
    if code == "suppressed":
        return SUPPRESSED + sub
    if why := reason_of(code, sub):
        return "stop" if why == Suppression.Reason.STOP else "unknown"
    return next((key for key, form in SUB_TYPES.items() if re.match(form, sub)), VENDOR + code)


def reason_of_message(message: Message, channel: str) -> str:
    """Return the reason for a message's failure, as a sentence; empty: it has not failed."""
    key = key_of(message)
    if key == LATER:
        form = CAME_BACK_BY.get(AnswerCause(message.cause)) if message.cause else None
        return _(form) if form else _("It came back.")
    return reason_sentence(key, channel, message.cause or "") if key else ""


def failed_for_reason(rows: "QuerySet[Message]", key: str) -> "QuerySet[Message]":
    """Return the messages that failed for this reason."""
    if key == "in_doubt":
        return rows.filter(in_doubt_at__isnull=False)
    if key.startswith(LATER):
        kinds = [key.removeprefix(LATER)] if key != LATER else [kind.value for kind in BOUNCES]
        events = MessageEvent.objects.filter(message=OuterRef("pk"), resend_no=OuterRef("report_no"), kind__in=kinds)
        known = Exists(events)
        return rows.filter(known if key != LATER else ~known, report=ReportKind.BOUNCED)
    failed = rows.filter(error_code__isnull=False)
    if key.startswith(UNMADE):
        return failed.filter(error_code=UNSENDABLE, error_sub_type__startswith=f"{key.removeprefix(UNMADE)}: ")
    if key == UNSENDABLE:  # the others, and those of before
        return failed.filter(error_code=key).exclude(_sub_type(OF_PART))
    if key in OURS:
        return failed.filter(error_code=key)
    if key.startswith(SUPPRESSED):
        return failed.filter(error_code="suppressed", error_sub_type=key.removeprefix(SUPPRESSED))
    others = failed.exclude(error_code__in=(*OURS, *OWN_ENDS))
    before = Q()
    for name, form in _ORDERED.items():
        if name == key:
            return others.filter(form).exclude(before) if before else others.filter(form)
        before |= form
    return others.filter(error_code=key.removeprefix(VENDOR)).exclude(before)


def _matches_code_or_text(form: str) -> Q:
    return Q(error_code__iregex=form) | Q(error_sub_type__isnull=False, error_sub_type__iregex=form)


def _sub_type(form: str) -> Q:
    return Q(error_sub_type__isnull=False, error_sub_type__regex=form)


_ORDERED = {
    "stop": _matches_code_or_text(STOPPED),
    "unknown": _matches_code_or_text(UNKNOWN),
    **{key: _sub_type(form) for key, form in SUB_TYPES.items()},
}
