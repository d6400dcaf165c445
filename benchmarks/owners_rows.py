"""Rows for the pages of campaign owners besides campaigns: suppressions, templates, approvals, drafts, calls."""

OWNERS = """
INSERT INTO campaigns_identity (name, from_name, from_address, reply_to, return_path, "default", enabled, dkim_domain,
    dkim_selector, secret, created_at, sponsor_id)
SELECT 'news-' || n, 'News', 'news@example.org', '', '', n = 0, true, '', '', '', now(), s.id
FROM campaigns_sponsor s, generate_series(0, 4) n;
INSERT INTO campaigns_topic (name, title, created_at, sponsor_id)
SELECT 'topic-' || n, 'Topic ' || n, now(), s.id FROM campaigns_sponsor s, generate_series(0, 9) n;
INSERT INTO campaigns_suppression (channel, digest, address, reason, source, since, position, sponsor_id)
SELECT 'email', hashtextextended('s' || n, 0), 'person' || n || '@example.org', 'unsubscribed', 'campaign',
    now() - n * interval '2 seconds', n, (SELECT min(id) FROM campaigns_sponsor) + floor(200 * power(random(), 3))::int
FROM generate_series(1, %(jobs)s) n;
INSERT INTO campaigns_template (name, channel, created_at, sponsor_id)
SELECT 'template-' || n, 'email', now(), s.id FROM campaigns_sponsor s, generate_series(1, 100) n;
INSERT INTO campaigns_templateversion (number, subject, body, html, text, remark, made_by, made_at, template_id)
SELECT n, 'News ' || n, repeat('Dear {{ name }}, a line of the letter. ', 50), false, '', '', 'ann', now(), t.id
FROM campaigns_template t, generate_series(1, 5) n;
UPDATE campaigns_campaign SET template_version_id = (SELECT min(id) FROM campaigns_templateversion) + id %% 1000
WHERE id %% 10 = 0;
INSERT INTO campaigns_approval (asked_kind, asked_by, asked_at, recipients, frozen, digest, verdict, decided_kind,
    decided_by, decided_user, decided_at, remark, campaign_id, sponsor_id)
SELECT 'key', 'mh_live', c.created_at, c.size, '{}', repeat('0', 64), k.verdict, CASE WHEN d THEN 'user' END,
    CASE WHEN d THEN 'bob' END, CASE WHEN d THEN 1 END, CASE WHEN d THEN c.created_at END, '', c.id, c.sponsor_id
FROM campaigns_campaign c CROSS JOIN LATERAL (SELECT c.id %% 2000 <> 0 OR c.created_at < now() - interval '3 days' AS d,
    CASE WHEN c.id %% 2000 <> 0 OR c.created_at < now() - interval '3 days' THEN 'approved' END AS verdict) k
WHERE c.id %% 10 = 0;
INSERT INTO campaigns_draft (key, created_at, updated_at, message_revision, name, transactional, subject, html, text,
    list_revision, list_name, list_bytes, list_sha256, list_version, columns, leave_out, when_revision, "when",
    time_zone, busy, fence, percent, failure, tests, credential_id, sponsor_id)
SELECT gen_random_uuid(), now(), now() - n * interval '1 minute', 1, 'Draft ' || n, false, 'News', '',
    'Dear {{ name }}', 1, '', 0, '', 0, '{}', false, 1, 'now', '', '', 0, 0, '', 0,
    (SELECT min(id) FROM vendors_credential),
    (SELECT min(id) FROM campaigns_sponsor) + n %% 200 FROM generate_series(1, 20000) n;
INSERT INTO campaigns_webhook (url, events, test, secret, enabled, disabled_reason, timeouts, created_at, sponsor_id)
SELECT 'https://example.org/hook', ARRAY['message.sent'], false, '', true, '', 0, now(), s.id
FROM campaigns_sponsor s, generate_series(0, 1);
INSERT INTO campaigns_session (id, test, key_prefix, idempotency_key, fingerprint, answer, metadata, created_at,
    finished_at, in_doubt, job_id, sponsor_id)
SELECT gen_random_uuid(), false, 'mh_live', j.id::text, '', '{}', '{}', j.created_at, j.finished_at, 0, j.id,
    j.sponsor_id FROM campaigns_job j WHERE j.parent_id IS NULL AND j.id %% 5 = 0;
INSERT INTO campaigns_webhookcall (event, kind, body, tries, http_status, result, created_at, session_id, webhook_id)
SELECT gen_random_uuid(), 'message.sent', repeat('{"type": "message.sent"}', 20), 1, 200, '', s.created_at, s.id,
    w.id FROM campaigns_session s JOIN campaigns_webhook w ON w.sponsor_id = s.sponsor_id
CROSS JOIN generate_series(0, 1);
INSERT INTO mailhub_apikey (kind, scopes, prefix, digest, requests_per_minute, created_at, last_used_at, sponsor_id)
SELECT 'live', ARRAY['send'], 'mh_live_' || s.id || '_' || n, decode(md5(s.id || '-' || n), 'hex'), 600, now(), now(),
    s.id FROM campaigns_sponsor s, generate_series(1, 10) n;
INSERT INTO django_admin_log (action_time, object_id, object_repr, action_flag, change_message, content_type_id,
    user_id)
SELECT now() - n * interval '2 seconds', (1 + n)::text, 'job ' || n, 2, 'stopped', t.id, 1
FROM generate_series(%(jobs)s - 1, 0, -1) n JOIN django_content_type t ON t.app_label = 'campaigns'
    AND t.model = CASE WHEN n %% 3 = 0 THEN 'campaign' ELSE 'job' END;
INSERT INTO waiter_parkedtask (due_at, task, task_id, queue, message, parked_at, publications)
SELECT now() + n * interval '1 minute', 'campaigns.tasks.send', 't' || n, 'casters', '{}', now(), 0
FROM generate_series(1, 20000) n;
INSERT INTO campaigns_inboundmessage (name, sender, "to", text, command, sponsor_id, vendor_id)
SELECT 'in' || n, '+4479460' || n, '+447946000', 'STOP', 'stop', (SELECT min(id) FROM campaigns_sponsor) + n %% 200,
    (SELECT min(id) FROM vendors_vendor) FROM generate_series(1, 100000) n;
INSERT INTO campaigns_messageevent (resend_no, kind, at, source, code, note, campaign_id, message_id)
SELECT 0, 'hard_bounce', j.started_at, 'report', '5.1.1', '', j.campaign_id, j.first_message + 2 FROM campaigns_job j
WHERE j.bounced > 0;
INSERT INTO campaigns_vendormessageid (name, message, uuid, resend_no, vendor_id)
SELECT 'v' || j.first_message, j.first_message, gen_random_uuid(), 0, j.vendor_id FROM campaigns_job j
WHERE j.status = 'LOGGED' AND j.parent_id IS NULL AND j.id %% 2 = 0
"""
