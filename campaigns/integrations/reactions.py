"""The engine's port `events`: webhooks tell programs what has happened, accounts and day counts are added up."""

import logging
from collections.abc import Sequence

from campaigns.engine import day_counts
from campaigns.engine.ports import Complaint, ReportChange
from campaigns.integrations.webhooks import events
from campaigns.models import Campaign, Session
from campaigns.reporting import accounts
from campaigns.reporting.forecast import streams
from vendors import alarms

log = logging.getLogger(__name__)


def campaign_paused(campaign: Campaign) -> None:
    sessions = Session.objects.filter(job__campaign=campaign.pk).select_related("job").defer("answer", "fingerprint")
    for session in sessions:
        events.store_pause_calls(session, campaign)


def reports_changed(changes: Sequence[ReportChange]) -> list[int]:
    return events.store_report_calls(changes)


def complaints_came(complaints: Sequence[Complaint]) -> list[int]:
    return events.store_complaint_calls(complaints)


def swept() -> None:
    accounts.sum_up()
    day_counts.sum_up()
    for alarm in streams.late_alarms(streams.streams_of_vendors()):
        alarms.NOT_SENT.log(log, alarm)
