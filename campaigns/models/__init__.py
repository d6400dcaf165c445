"""The tables of campaigns.

answers: what recipients wrote that a person has to read. campaigns: sponsors, their topics, campaigns, and which rows a
user may see. identities: sender identities, entitlements. files: attachments. drafts: campaigns being made, with their
lists. jobs: messages, the jobs that send them, their calls and answers. api_clients: webhooks, and sessions, which the
HTTP API returns for a send request. api_keys: keys, answers kept for repeats. operations: nights, decisions about
doubts, the store, the last audit, vendors' charges. approvals: who let a campaign go. routes: the vendors for a
campaign, in order. suppressions: suppressed addresses, keys. sharing: sponsors' weights at a vendor. quotas: how much
they may send. templates: kept by sponsors, with versions. message_events: bounces, complaints, counts by day, letters
by the vendor's own id, messages from recipients. complaints: complaints by receiving domain, and the pauses after too
many.
"""

from campaigns.models.answers import RecipientAnswer
from campaigns.models.api_clients import Session, Webhook, WebhookCall
from campaigns.models.api_keys import ApiKey, FormerSecretKey, KeptAnswer
from campaigns.models.approvals import Approval
from campaigns.models.campaigns import Campaign, Sponsor, Topic
from campaigns.models.complaints import ComplaintPause, ComplaintRate, UncountedComplaint
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
from campaigns.models.operations import (
    Audited,
    CostEntry,
    DispatchRun,
    RefusalRun,
    RefusalTail,
    Resolution,
    SponsorRefusalRun,
    Store,
)
from campaigns.models.quotas import SponsorQuota
from campaigns.models.routes import Route, RouteEntry, RouteMove
from campaigns.models.sharing import ClassCredit, ClassTurn, SponsorTurn
from campaigns.models.suppressions import Suppression, SuppressionKey, TokenKey
from campaigns.models.templates import Template, TemplateVersion

__all__ = [
    "BOUNCES",
    "HOLDING",
    "AnswerBatch",
    "ApiKey",
    "Approval",
    "Audited",
    "Campaign",
    "CampaignFile",
    "Claim",
    "ClassCredit",
    "ClassTurn",
    "ComplaintPause",
    "ComplaintRate",
    "CostEntry",
    "DayCount",
    "DispatchRun",
    "Draft",
    "DraftBlock",
    "DraftFile",
    "Entitlement",
    "FormerSecretKey",
    "Identity",
    "InboundCount",
    "InboundMessage",
    "Job",
    "KeptAnswer",
    "Message",
    "MessageEvent",
    "RecipientAnswer",
    "RefusalRun",
    "RefusalTail",
    "ReportKind",
    "Resolution",
    "Route",
    "RouteEntry",
    "RouteMove",
    "Session",
    "Sponsor",
    "SponsorQuota",
    "SponsorRefusalRun",
    "SponsorTurn",
    "Store",
    "StoredFile",
    "Suppression",
    "SuppressionKey",
    "Template",
    "TemplateVersion",
    "TokenKey",
    "Topic",
    "UncountedComplaint",
    "UploadedFile",
    "VendorMessageId",
    "WaitingReport",
    "Webhook",
    "WebhookCall",
]
