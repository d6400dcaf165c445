"""The frozen parts of a campaign, stored at the request for its approval, and the changes made since."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connection

from campaigns.models import Approval
from vendors.said import gettext_noop

BLOCK = 10_000  # messages in one digest, so that any number is read in bounded memory
# An approval covers texts, headers, sender, vendor, time, files and each message in order. Times are UTC. The limits at
# which a campaign pauses itself are not included, because they may be changed during sending.
_PARTS = """
    'sponsor', s.name, 'name', c.name, 'subject', c.subject, 'html', c.html, 'transactional', c.transactional,
    'body', encode(sha256(convert_to(c.body, 'UTF8')), 'hex'),
    'text', encode(sha256(convert_to(c.text, 'UTF8')), 'hex'), 'headers', c.headers,
    'topic', t.name, 'identity', i.name, 'reply to', i.reply_to, 'return path', nullif(i.return_path, ''),
    'signed by', nullif(concat_ws('._domainkey.', nullif(i.dkim_selector, ''), nullif(i.dkim_domain, '')), ''),
    'from', concat_ws(' ', i.from_name, i.from_address, i.sender_id, array_to_string(i.numbers, ' ')),
    'vendor', v.slug, 'credential', l.name, 'route', r.name, 'route entries', (
        SELECT string_agg(ev.slug || '/' || el.name || '=' || e.weight, ', ' ORDER BY e.position)
        FROM campaigns_routeentry e JOIN vendors_credential el ON el.id = e.credential_id
            JOIN vendors_vendor ev ON ev.id = el.vendor_id WHERE e.route_id = c.route_id), 'recipients', c.size,
    'first message', c.first_message, 'first', j.wait_after, 'when', CASE WHEN j.status = 'RENDERED' THEN 'nightly'
        ELSE coalesce(to_char(c.send_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'at once') END,
    'hours', to_char(c.hours_from, 'HH24:MI') || '-' || to_char(c.hours_to, 'HH24:MI'), 'time zone', c.time_zone,
    'hours of each', to_char(c.each_from, 'HH24:MI') || '-' || to_char(c.each_to, 'HH24:MI'),
    'deadline', to_char(c.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'file fields', c.file_fields"""
_LARGE_PARTS = f"""
    'files', (
        SELECT encode(sha256(string_agg(f.file_id || sha256(convert_to(jsonb_build_array(
            f.name, f.content_type, f.cid, f.to_all)::text, 'UTF8')), ''::bytea ORDER BY f.id)), 'hex')
        FROM campaigns_campaignfile f WHERE f.campaign_id = c.id),
    'messages', (
        SELECT encode(sha256(string_agg(b.digest, ''::bytea ORDER BY b.block)), 'hex') FROM (
            SELECT (m.id - c.first_message) / {BLOCK} AS block, sha256(string_agg(
                sha256(convert_to(m.recipient || E'\\n' || m.params::text, 'UTF8')), ''::bytea ORDER BY m.id)) AS digest
            FROM campaigns_message m WHERE m.id >= c.first_message AND m.id < c.first_message + c.size GROUP BY 1
        ) b)"""
_OF = """
FROM campaigns_campaign c JOIN campaigns_sponsor s ON s.id = c.sponsor_id
JOIN campaigns_job j ON j.campaign_id = c.id AND j.parent_id IS NULL
JOIN vendors_credential l ON l.id = c.credential_id JOIN vendors_vendor v ON v.id = l.vendor_id
LEFT JOIN campaigns_identity i ON i.id = c.identity_id LEFT JOIN campaigns_topic t ON t.id = c.topic_id
LEFT JOIN campaigns_route r ON r.id = c.route_id
WHERE c.id = ANY(%(campaigns)s)
"""
FROZEN = f"SELECT c.id, jsonb_build_object({_PARTS}, {_LARGE_PARTS}) AS frozen {_OF}"
SMALL = f"SELECT c.id, jsonb_build_object({_PARTS}) AS frozen {_OF}"
# Parts stored outside the campaign, which somebody may change on a page while it waits.
SHARED = (
    "from",
    "identity",
    "reply to",
    "return path",
    "route",
    "route entries",
    gettext_noop("signed by"),
    "sponsor",
    "topic",
)
DIFFERENT = """
SELECT n.key, a.frozen -> n.key, n.value FROM ({frozen}) c CROSS JOIN LATERAL jsonb_each(c.frozen) n
JOIN campaigns_approval a ON a.campaign_id = c.id
WHERE jsonb_exists(a.frozen, n.key) AND a.frozen -> n.key IS DISTINCT FROM n.value ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Change:
    """A part of a campaign that differs from its state at the request for approval."""

    part: str
    was: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.part} was {self.was or 'nothing'} and is {self.now or 'nothing'}"


def list_changes(approval: Approval, *, whole: bool = True) -> list[Change]:
    """Return the parts of the campaign that differ from the frozen state. whole: compare files and all messages too."""
    with connection.cursor() as cursor:
        frozen = FROZEN if whole else SMALL
        cursor.execute(DIFFERENT.format(frozen=frozen), {"campaigns": [approval.campaign_id]})
        return [Change(part, _read_frozen_value(was), _read_frozen_value(now)) for part, was, now in cursor.fetchall()]


def _read_frozen_value(value: str) -> Any:
    found = json.loads(value)
    return found.strip() if isinstance(found, str) else found


def changes_token(changed: Iterable[Change]) -> str:
    """Return a digest of these changes, so that only changes seen by somebody get approved; empty if none."""
    found = [[one.part, one.now] for one in changed]
    return hashlib.blake2b(json.dumps(found).encode(), digest_size=6).hexdigest() if found else ""
