from functools import partial
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.utils.translation import gettext_lazy


class CampaignsConfig(AppConfig):
    name = "campaigns"
    verbose_name = gettext_lazy("Campaigns")

    def ready(self) -> None:
        from campaigns.engine import ports
        from campaigns.engine.routes.whose import count_called_here
        from campaigns.models import Sponsor, SponsorQuota
        from campaigns.senders.entitlements import offer_first
        from campaigns.suppression.lists import vendor_made
        from vendors.configuration import calls_may_start
        from vendors.destinations import open_doubts
        from vendors.models import Vendor

        ports.wire_ports(
            letters="campaigns.content.letter_making",
            suppressions="campaigns.suppression.for_engine",
            gates="campaigns.approvals.gates",
            events="campaigns.integrations.reactions",
        )
        post_save.connect(offer_first, sender=Sponsor)
        post_save.connect(offer_first, sender=Vendor)
        post_save.connect(vendor_made, sender=Vendor)
        open_doubts.connect(count_called_here)
        calls_may_start.connect(_notify_vendor)
        post_save.connect(_look_at_held_jobs, sender=SponsorQuota)
        post_save.connect(_warn_of_quota, sender=SponsorQuota)
        post_delete.connect(_look_at_held_jobs, sender=SponsorQuota)


def _notify_vendor(vendor_id: int, **_: Any) -> None:
    from campaigns.engine.dispatch.dispatcher import notify_vendors  # commands do not load Celery for nothing

    notify_vendors([vendor_id])


def _look_at_held_jobs(**_: Any) -> None:
    from campaigns.engine.dispatch.dispatcher import sweep_soon

    transaction.on_commit(sweep_soon)


def _warn_of_quota(instance: Any, **_: Any) -> None:
    from campaigns.senders.quotas.admission import warn_of

    transaction.on_commit(partial(warn_of, instance.sponsor_id), robust=True)


if TYPE_CHECKING:  # each feature is held to its protocol
    from campaigns.approvals import gates
    from campaigns.content import letter_making
    from campaigns.engine import ports
    from campaigns.integrations import reactions
    from campaigns.suppression import for_engine

    letters: ports.LetterMaker = letter_making
    suppressions: ports.Suppressions = for_engine
    its_gates: ports.Gates = gates
    events: ports.Events = reactions
