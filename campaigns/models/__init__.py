"""The tables of campaigns.

campaigns: sponsors, their topics, campaigns, whose rows a user may see. identities: sender identities, entitlements.
files: what letters carry. drafts: campaigns that somebody is making, with their lists. jobs: messages, the jobs that
send them, their calls and answers. api_clients: sessions, which the HTTP API gives for a send request, and webhooks.
operations: nights, decisions about doubts, the store, the last audit, what vendors charge for. approvals: who let a
campaign go. routes: by which vendors campaigns may go. suppressions: whom nobody writes to again; keys. templates:
those that sponsors keep, with versions. message_events: bounces, complaints, what happened by day, letters by the
vendor's own id, what recipients write to us.
"""

from campaigns.models.api_clients import Session, Webhook, WebhookCall
from campaigns.models.approvals import Approval
from campaigns.models.campaigns import Campaign, Sponsor, Topic
from campaigns.models.drafts import Draft, DraftBlock, DraftFile
from campaigns.models.files import CampaignFile, StoredFile, UploadedFile
from campaigns.models.identities import Entitlement, Identity
from campaigns.models.jobs import HOLDING, AnswerBatch, Claim, Job, Message, ReportKind
from campaigns.models.message_events import (
    BOUNCES,
    DayCount,
    InboundCount,
    InboundMessage,
    MessageEvent,
    VendorMessageId,
    WaitingReport,
)
from campaigns.models.operations import Audited, CostEntry, DispatchRun, Resolution, Store
from campaigns.models.routes import Route, RouteEntry, RouteMove
from campaigns.models.suppressions import Suppression, SuppressionKey, TokenKey
from campaigns.models.templates import Template, TemplateVersion

__all__ = [
    "BOUNCES",
    "HOLDING",
    "AnswerBatch",
    "Approval",
    "Audited",
    "Campaign",
    "CampaignFile",
    "Claim",
    "CostEntry",
    "DayCount",
    "DispatchRun",
    "Draft",
    "DraftBlock",
    "DraftFile",
    "Entitlement",
    "Identity",
    "InboundCount",
    "InboundMessage",
    "Job",
    "Message",
    "MessageEvent",
    "ReportKind",
    "Resolution",
    "Route",
    "RouteEntry",
    "RouteMove",
    "Session",
    "Sponsor",
    "Store",
    "StoredFile",
    "Suppression",
    "SuppressionKey",
    "Template",
    "TemplateVersion",
    "TokenKey",
    "Topic",
    "UploadedFile",
    "VendorMessageId",
    "WaitingReport",
    "Webhook",
    "WebhookCall",
]
