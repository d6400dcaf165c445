"""The tables of campaigns.

campaigns: sponsors, campaigns, whose rows a user may see. identities: sender identities, entitlements. files: what
letters carry. jobs: messages, the jobs that send them, their calls and answers. api_clients: sessions, which the HTTP
API gives for a send request, and webhooks. operations: nights, decisions about doubts, the store, the last audit.
suppressions: whom nobody writes to again; keys.
"""

from campaigns.models.api_clients import Session, Webhook, WebhookCall
from campaigns.models.campaigns import Campaign, Sponsor
from campaigns.models.files import CampaignFile, StoredFile
from campaigns.models.identities import Entitlement, Identity
from campaigns.models.jobs import HOLDING, AnswerBatch, Claim, Job, Message, ReportKind
from campaigns.models.operations import Audited, DispatchRun, Resolution, Store
from campaigns.models.suppressions import Suppression, SuppressionKey, TokenKey

__all__ = [
    "HOLDING",
    "AnswerBatch",
    "Audited",
    "Campaign",
    "CampaignFile",
    "Claim",
    "DispatchRun",
    "Entitlement",
    "Identity",
    "Job",
    "Message",
    "ReportKind",
    "Resolution",
    "Session",
    "Sponsor",
    "Store",
    "StoredFile",
    "Suppression",
    "SuppressionKey",
    "TokenKey",
    "Webhook",
    "WebhookCall",
]
