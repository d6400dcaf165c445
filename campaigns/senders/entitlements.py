"""Decides which sponsor may use which vendor, credential and sender identity. Nothing is allowed unless granted.

The check runs when work is accepted, and again on dispatch, retry and resume; jobs that fail it then are held.
Dispatched work continues, including a parent's uncut rest; `stop_job` stops it.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import Case, CharField, Exists, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Now
from django.db.models.lookups import Exact

from campaigns.engine import prepared
from campaigns.engine.ports import NotEntitled
from campaigns.models import Campaign, Entitlement, Identity, Job, Sponsor, SponsorQuota, Topic
from campaigns.models.identities import Urgent, named_address
from campaigns.models.states import DONE, Status
from campaigns.senders.quotas import admission
from vendors import adapters
from vendors.mail_classes import MailClass
from vendors.models import Credential, Vendor
from vendors.ownership import owned_vendors
from vendors.said import Said, gettext_noop

FIRST_NAME = "default"  # of an installation's first identity


def grant_entitlement(
    sponsor: Sponsor, vendor: Vendor, credential: Credential | None = None, urgent: str = Urgent.SINGLE
) -> tuple[Entitlement, bool]:
    """Allow the sponsor all the vendor's credentials, or this one. Returns the entitlement and True if it is new.

    urgent: the right of a new one to send urgent mail (Urgent).

    An installation's first sender identity is made from the From address in a relay's settings.
    """
    with transaction.atomic():
        one_change()
        found, new = Entitlement.objects.get_or_create(
            sponsor=sponsor, vendor=vendor, credential=credential, defaults={"urgent": urgent}
        )
        address = vendor.settings.get("sender")
        mail = vendor.channel == Vendor.Channel.EMAIL
        if address and mail and not Identity.objects.exists():
            Identity.objects.create(sponsor=sponsor, name=FIRST_NAME, default=True, **named_address(address))
    return found, new


def offer_first(sender: Any, created: bool = False, raw: bool = False, **_: Any) -> None:
    """After a sponsor or vendor was stored: grant an installation's first vendor to its only sponsor."""
    if not created or raw:
        return
    with transaction.atomic():
        one_change()
        sponsors = list(Sponsor.objects.all()[:2])
        vendors = list(Vendor.objects.order_by("id")[:2])
        first = bool(vendors) and (sender is Sponsor or len(vendors) == 1)
        if first and len(sponsors) == 1 and not Entitlement.objects.exists():
            grant_entitlement(sponsors[0], vendors[0])


def free_default(of: Sponsor, channel: str) -> None:
    """Clear the channel's default before another identity becomes it. The last of two concurrent changes wins."""
    one_change()
    of.identities.filter(default=True, channel=channel).update(default=False)


def one_change() -> None:
    """Serialise changes of identities within the caller's transaction, so that no number belongs to two."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('campaigns.entitlements'))")


def vendors_seen(user: Any) -> "QuerySet[Vendor]":
    """Select the vendors that a user governs, or that one of the user's sponsors may use."""
    if owned_vendors(user) is None:
        return Vendor.objects.all()
    offered = Entitlement.objects.filter(sponsor__users=user).values("vendor")
    return Vendor.objects.filter(Q(pk__in=owned_vendors(user)) | Q(pk__in=offered))


def credentials_seen(user: Any) -> "QuerySet[Credential]":
    """Select the credentials that a user governs, or that one of the user's sponsors may use, without their secrets."""
    rows = Credential.objects.select_related("vendor").defer("secret")
    mine = owned_vendors(user)
    if mine is None:
        return rows
    offered = Entitlement.objects.filter(sponsor__users=user)
    whole, single = offered.filter(credential=None).values("vendor"), offered.values("credential")
    return rows.filter(Q(vendor__in=mine) | Q(vendor__in=whole) | Q(pk__in=single))


Allowed = dict[int, frozenset[int] | None]


@dataclass(frozen=True, slots=True)
class SponsorRights:
    """The rights of a sponsor. allowed: its vendors, each with its permitted credentials; None: all.

    urgent: its rights to send urgent mail, by vendor and credential; None: all credentials.
    """

    allowed: Allowed
    urgent: Mapping[tuple[int, int | None], str]

    def urgent_over(self, vendor_id: int, credential_id: int | None) -> Urgent:
        """Return the larger right of the two that may hold for a credential."""
        keys = {(vendor_id, None), (vendor_id, credential_id)}
        rights = (Urgent(self.urgent[key]) for key in keys if key in self.urgent)
        return max(rights, key=[*Urgent].index, default=Urgent.NOTHING)


def rights_of(sponsor_id: int) -> SponsorRights:
    """Return the sponsor's rights."""
    return rights_of_sponsors([sponsor_id])[sponsor_id]


def rights_of_sponsors(sponsor_ids: Iterable[int]) -> dict[int, SponsorRights]:
    """Return the rights of each sponsor, in one statement."""
    of = set(sponsor_ids)
    rows = Entitlement.objects.filter(sponsor__in=of).values_list("sponsor", "vendor", "credential", "urgent")
    found: dict[int, dict[int, set[int | None]]] = {one: {} for one in of}
    urgent: dict[int, dict[tuple[int, int | None], str]] = {one: {} for one in of}
    for sponsor_id, vendor_id, credential_id, right in rows:
        found[sponsor_id].setdefault(vendor_id, set()).add(credential_id)
        urgent[sponsor_id][vendor_id, credential_id] = right
    return {one: SponsorRights(_allowed_of(found[one]), urgent[one]) for one in of}


def _allowed_of(found: Mapping[int, set[int | None]]) -> Allowed:
    return {one: None if None in ids else frozenset(filter(None, ids)) for one, ids in found.items()}


def allowed_vendors(sponsor_id: int) -> Allowed:
    """Return the sponsor's vendors, each with its permitted credentials; None: all."""
    return rights_of(sponsor_id).allowed


def decide_class(
    named: int | None, size: int, right: Urgent, vendor: Vendor | str, *, transactional: bool, by_program: bool = False
) -> MailClass:
    """Return the class of a job. named: by its campaign, request or template. Raises NotEntitled for urgent mail.

    Without a name a program's single letter is urgent if the sponsor has the right. A list that lets recipients
    unsubscribe is bulk; all other mail is usual.
    """
    may_be_urgent = right == Urgent.ALL or (right == Urgent.SINGLE and size == 1)
    if named is None and size == 1 and by_program and may_be_urgent:
        return MailClass.URGENT
    if named is None:
        return MailClass.BULK if size > 1 and not transactional else MailClass.USUAL
    if named == MailClass.URGENT and not may_be_urgent:
        if right == Urgent.SINGLE:
            raise NotEntitled(
                Said("only single letters may be urgent over %(vendor)s, and this is a list", vendor=vendor)
            )
        raise NotEntitled(Said("nothing may be urgent over %(vendor)s", vendor=vendor))
    return MailClass(named)


def class_for(
    sponsor: Sponsor, credential: Credential, named: int | None, size: int, *, transactional: bool
) -> MailClass:
    """Return the class of a campaign that a person makes. Raises NotEntitled."""
    right = Urgent.SINGLE  # as `offer_first` would grant it to an unsaved sponsor
    if sponsor.pk is not None and named == MailClass.URGENT:
        right = rights_of(sponsor.pk).urgent_over(credential.vendor_id, credential.pk)
    return decide_class(named, size, right, credential.vendor, transactional=transactional)


def refuse_classes(asked: Sequence[tuple[int, Credential, int, int]]) -> list[str]:
    """Return for each stored campaign why its class is refused, or "". asked: sponsor, credential, class, size.

    One statement, or none if nothing is urgent.
    """
    urgent = {sponsor for sponsor, _login, mail_class, _size in asked if mail_class == MailClass.URGENT}
    rights = rights_of_sponsors(urgent) if urgent else {}
    return [_refuse_class(rights[one[0]], *one[1:]) if one[2] == MailClass.URGENT else "" for one in asked]


def _refuse_class(rights: SponsorRights, credential: Credential, mail_class: int, size: int) -> str:
    right = rights.urgent_over(credential.vendor_id, credential.pk)
    try:
        decide_class(mail_class, size, right, credential.vendor.slug, transactional=False)
    except NotEntitled as why:
        return str(why)
    return ""


# Takes urgency from jobs, by their kind. Jobs locked by a claim keep it; they are being sent.
LOWER = f"""
UPDATE campaigns_job j SET mail_class = CASE WHEN c.size > 1 AND NOT c.transactional
    THEN {MailClass.BULK.value} ELSE {MailClass.USUAL.value} END
FROM campaigns_campaign c
WHERE c.id = j.campaign_id AND j.id IN (
    SELECT j.id FROM campaigns_job j JOIN campaigns_campaign c ON c.id = j.campaign_id
    WHERE j.vendor_id = %(vendor)s AND j.sponsor_id = %(sponsor)s AND j.mail_class = {MailClass.URGENT.value}
        AND j.status <> ALL(%(done)s) AND (%(credential)s::bigint IS NULL OR j.credential_id = %(credential)s)
        AND NOT (c.size = 1 AND %(single)s) ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED)
"""


def set_urgent(row: Entitlement, right: str) -> None:
    """Change the sponsor's right to urgent mail. Jobs that may no longer be urgent lose their class immediately."""
    with transaction.atomic():
        Entitlement.objects.filter(pk=row.pk).update(urgent=right)
        row.urgent = right
        lower_urgent(row)


def lower_urgent(row: Entitlement) -> None:
    """Take the class urgent from jobs that may not have it by this entitlement and the sponsor's others."""
    rights = rights_of(row.sponsor_id)
    names = (
        [row.credential_id]
        if row.credential_id
        else [*Credential.objects.filter(vendor=row.vendor_id).values_list("pk", flat=True)]
    )
    with connection.cursor() as cursor:
        for credential_id in names:
            right = rights.urgent_over(row.vendor_id, credential_id)
            if right != Urgent.ALL:
                facts = {"vendor": row.vendor_id, "sponsor": row.sponsor_id, "credential": credential_id}
                cursor.execute(LOWER, facts | {"done": list(DONE), "single": right == Urgent.SINGLE})


def require_entitlement(sponsor: Sponsor, credential: Credential) -> None:
    """Raise NotEntitled unless the sponsor may use the credential.

    An unsaved sponsor may use the vendor that `offer_first` would grant it.
    """
    vendor = credential.vendor
    if sponsor.pk is None:
        first = Vendor.objects.order_by("id").first()
        known = Sponsor.objects.exists() or Entitlement.objects.exists()
        may = not known and first == vendor
    else:
        of = Q(credential=None) | Q(credential=credential)
        may = Entitlement.objects.filter(of, sponsor=sponsor, vendor=vendor).exists()
    if not may:
        new = "" if sponsor.pk else " --new-sponsor"
        command = f"manage.py entitlement add {shlex.quote(sponsor.name)} {vendor.slug}{new}"
        raise NotEntitled(
            Said(
                "%(sponsor)s may not use %(credential)s; to allow it: %(command)s",
                sponsor=sponsor.name,
                credential=credential,
                command=command,
            )
        )


def adapter_needs_identity(vendor: Vendor) -> bool:
    """Return True if the vendor's adapter writes the mails, with their From."""
    try:
        return adapters.load(vendor.adapter).asks_origin(vendor.settings)
    except (LookupError, ValueError):  # the error is reported where the adapter is used
        return False


def pick_identity(mine: Mapping[str, Identity], name: str, vendor_slug: str) -> Identity | None:
    """Pick from a sponsor's enabled identities the named one; without a name, the vendor's namesake, else the default.

    vendor_slug: "" while the vendor is not chosen yet.
    """
    if name:
        return mine.get(name)
    return mine.get(vendor_slug) or next((one for one in mine.values() if one.default), None)


def choose_identity_for(sponsor: Sponsor, vendor: Vendor, name: str = "") -> Identity | None:
    """Return the sponsor's identity by the rules of `pick_identity`, or None if the vendor needs none. Raises
    NotEntitled.
    """
    if vendor.channel == Vendor.Channel.PRINT:
        if name:
            raise NotEntitled(
                Said(
                    "a sender identity is for e-mail or SMS, and %(vendor)s delivers %(channel)s",
                    vendor=vendor.slug,
                    channel=vendor.channel,
                )
            )
        return None
    mine = {one.name: one for one in sponsor.identities.filter(enabled=True, channel=vendor.channel)}
    found = pick_identity(mine, name, vendor.slug)
    if found is None and name:
        known = ", ".join(mine) or "none"
        raise NotEntitled(
            Said(
                "%(sponsor)s has no sender identity %(name)s for %(channel)s that is enabled; there are: %(known)s",
                sponsor=sponsor.name,
                name=repr(name),
                channel=vendor.channel,
                known=known,
            )
        )
    if found is None and adapter_needs_identity(vendor):
        raise NotEntitled(
            Said(
                "%(sponsor)s has no default sender identity, and %(vendor)s needs one: manage.py identity add",
                sponsor=sponsor.name,
                vendor=vendor.slug,
            )
        )
    return found


def choose_topic(sponsor: Sponsor, topic: str = "", transactional: bool = False) -> Topic | None:
    """Return the sponsor's topic of that name for a new campaign. A transactional campaign has none.

    An archived topic is only for campaigns that name it already. Raises NotEntitled.
    """
    if transactional and topic:
        raise NotEntitled(Said("a transactional campaign has no topic: nobody can unsubscribe from it"))
    if transactional and not sponsor.may_be_transactional:
        command = f"manage.py sponsor set {shlex.quote(sponsor.name)} --transactional yes"
        raise NotEntitled(
            Said(
                "%(sponsor)s may not mark campaigns as transactional; to allow it: %(command)s",
                sponsor=sponsor.name,
                command=command,
            )
        )
    if not topic:
        return None
    found = sponsor.topics.filter(name=topic).first() if sponsor.pk else None
    if found is None:
        known = ", ".join(sponsor.topics.filter(archived_at=None).values_list("name", flat=True)) if sponsor.pk else ""
        raise NotEntitled(
            Said(
                "%(sponsor)s has no topic %(name)s; there are: %(known)s",
                sponsor=sponsor.name,
                name=repr(topic),
                known=known or "none",
            )
        )
    if found.archived_at:
        raise NotEntitled(
            Said("the topic %(title)s is archived: choose another one, or have it restored", title=repr(found.title))
        )
    return found


NOT_ENTITLED = gettext_noop("held: its sponsor may not use this vendor or credential any more")
NO_IDENTITY = gettext_noop("held: its sender identity is disabled")
NOT_TRANSACTIONAL = gettext_noop("held: its sponsor may not send transactional mail any more")


def _entitled_exists() -> Exists:
    of = Q(credential=None) | Q(credential=OuterRef("credential"))
    return Exists(Entitlement.objects.filter(of, sponsor=OuterRef("sponsor"), vendor=OuterRef("vendor")))


def _disabled_exists() -> Exists:
    return Exists(Campaign.objects.filter(pk=OuterRef("campaign"), identity__enabled=False))


def _not_transactional() -> Exists:
    """Condition: the campaign is marked as transactional, and its sponsor may not do that any more."""
    marked = Campaign.objects.filter(pk=OuterRef("campaign"), transactional=True)
    return Exists(marked.filter(sponsor__may_be_transactional=False))


def _expired_exists() -> Exists:
    return Exists(Campaign.objects.filter(pk=OuterRef("campaign"), deadline__lte=Now()))


def may_go_now() -> Q:
    """Select jobs whose sponsor may use their vendor, credential, identity and, where needed, transactional mail.

    Jobs past their deadline are included: no call is made, and their sender lets them expire.
    """
    return Q(_entitled_exists()) & ~Q(_disabled_exists()) & ~Q(_not_transactional()) | Q(_expired_exists())


def _campaign_says(field: str, **which: Any) -> Coalesce:
    """Return a field of a job's campaign, or True if the campaign does not match.

    A value and not an EXISTS, for which the planner would read all campaigns even for a page of fifty jobs.
    """
    campaign = Campaign.objects.filter(pk=OuterRef("campaign"), **which)
    return Coalesce(Subquery(campaign.values(field)[:1]), True)


ASKS_QUOTAS = "quotas"  # in place of a reason: the job's sponsor has quotas, which must be asked


def _asks_quotas() -> Q:
    """Match jobs whose time has come, and whose sponsor has a quota."""
    mine = SponsorQuota.objects.filter(sponsor=OuterRef("sponsor"))
    return Q(status=Status.READY) & (Q(not_before=None) | Q(not_before__lte=Now())) & Q(Exists(mine))


def held_reason_expression() -> Case:
    """Return an expression for the reason a job is held, ASKS_QUOTAS, or ""."""
    return Case(
        When(~Q(_entitled_exists()), then=Value(NOT_ENTITLED)),
        When(Exact(_campaign_says("identity__enabled"), False), then=Value(NO_IDENTITY)),
        When(
            Exact(_campaign_says("sponsor__may_be_transactional", transactional=True), False),
            then=Value(NOT_TRANSACTIONAL),
        ),
        When(_asks_quotas(), then=Value(ASKS_QUOTAS)),
        default=Value(""),
        output_field=CharField(),
    )


_HELD = prepared.ByKey(lambda: Job.objects.order_by().values_list("pk", held_reason_expression()))


def held_reasons(job_ids: Iterable[int]) -> dict[int, str]:
    """Return the reason for each held job among these, by its id."""
    found = {job_id: why for job_id, why in _HELD.of(job_ids) if why}
    by_quotas = admission.tell_held([job_id for job_id, why in found.items() if why == ASKS_QUOTAS])
    return {**{job_id: Said(why) for job_id, why in found.items() if why != ASKS_QUOTAS}, **by_quotas}


def find_held_reason(job_ids: Iterable[int]) -> str:
    """Return the reason one of these jobs is held, or "". Jobs past their deadline are not."""
    found = Job.objects.filter(pk__in=list(job_ids)).exclude(may_go_now()).annotate(held=held_reason_expression())
    why = found.values_list("held", flat=True).first()
    return Said(why) if why else ""
