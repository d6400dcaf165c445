"""The engine's port `gates`: what may go out, by entitlements, approvals and quotas."""

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models import Q

from campaigns.approvals import approval_rules
from campaigns.engine.ports import MoveQuotas, NotEntitled
from campaigns.models import Campaign, Sponsor
from campaigns.senders import entitlements
from campaigns.senders.quotas import admission
from vendors.models import Credential, Vendor


def may_go() -> Q:
    return entitlements.may_go_now()


def may_resume() -> Q:
    return approval_rules.may_go_on()


def waits_for_approval(campaign: Campaign) -> bool:
    return approval_rules.is_undecided(campaign)


def may_use(sponsor: Sponsor, credential: Credential) -> bool:
    try:
        entitlements.require_entitlement(sponsor, credential)
    except NotEntitled:
        return False
    return True


def refuse_classes(asked: Sequence[tuple[int, Credential, int, int]]) -> list[str]:
    return entitlements.refuse_classes(asked)


def open_moves(sponsor_id: int, credentials: Collection[Credential]) -> MoveQuotas:
    return admission.open_vendor_quotas(sponsor_id, [(one.vendor_id, one.pk) for one in credentials])


def refuse_moves(asked: Sequence[tuple[int, Credential, int]]) -> list[str]:
    return admission.refuse_moves([(of, one.vendor_id, one.pk, messages) for of, one, messages in asked])


def needs_identity(vendor: Vendor) -> bool:
    return entitlements.adapter_needs_identity(vendor)


def hold_back(job_ids: Collection[int], now: datetime) -> Collection[int]:
    return admission.hold_jobs_back(job_ids, now)


def held_by_quotas(job_ids: Collection[int], now: datetime) -> Collection[int]:
    return admission.find_held(job_ids, now)
