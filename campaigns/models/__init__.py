"""The rows of the work.

mail: campaigns, messages, jobs. api_clients: sessions, which the HTTP front gives for a send request, and webhooks.
operations: nights, the store, the last audit.
"""

from campaigns.models.api_clients import Session, Webhook, WebhookCall
from campaigns.models.mail import HOLDING, Campaign, Delivery, Job, Message, OpsMessage, ReportKind, Resolution, Sponsor
from campaigns.models.operations import Audited, DispatchRun, Store

__all__ = [
    "HOLDING",
    "Audited",
    "Campaign",
    "Delivery",
    "DispatchRun",
    "Job",
    "Message",
    "OpsMessage",
    "ReportKind",
    "Resolution",
    "Session",
    "Sponsor",
    "Store",
    "Webhook",
    "WebhookCall",
]
