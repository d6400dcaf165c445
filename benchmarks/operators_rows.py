"""The rows that benchmarks.operators looks at: ninety days of an installation with forty sponsors and eight vendors."""

SPONSORS, VENDORS = 40, 8

# A sponsor's share falls with its number. Jobs have ten messages; one in fifty of the logged ones has a refusal, one in
# a thousand a doubt; of those that are sent four messages are in flight. There are messages of these, and of the
# youngest jobs.
SEED = """
INSERT INTO campaigns_campaign (sponsor_id, credential_id, name, subject, body, html, first_message, size, time_zone,
    created_at)
SELECT (SELECT min(id) FROM campaigns_sponsor) + floor(40 * power(random(), 2))::int, c.id, 'Campaign ' || n, '', '',
    false, 1 + n * 100, 100, '', now()
FROM generate_series(0, %(campaigns)s - 1) n
JOIN vendors_credential c ON c.id = (SELECT min(id) FROM vendors_credential) + n %% 8;
INSERT INTO campaigns_job (campaign_id, sponsor_id, vendor_id, credential_id, status, first_message, size, remaining,
    fence, revision, waits_for, accepted, refused, in_doubt, expired, created_at, dispatched_at, started_at,
    finished_at, stopped_by)
SELECT c.id, c.sponsor_id, l.vendor_id, l.id, s.status, c.first_message + n %% 10 * 10, 10, 0, 1, 0, '',
    CASE WHEN s.status = 'LOGGED' THEN 10 - (n %% 50 = 0)::int - (n %% 1000 = 1)::int ELSE 0 END,
    CASE WHEN s.status = 'LOGGED' AND n %% 50 = 0 THEN 1 ELSE 0 END,
    CASE WHEN s.status = 'LOGGED' AND n %% 1000 = 1 THEN 1 ELSE 0 END, 0, s.at,
    CASE WHEN s.status <> 'RENDERED' THEN s.at END, CASE WHEN s.status = 'LOGGED' THEN s.at END,
    CASE WHEN s.status = 'LOGGED' THEN s.at + interval '1 hour' END, ''
FROM generate_series(0, %(jobs)s - 1) n
JOIN campaigns_campaign c ON c.id = (SELECT min(id) FROM campaigns_campaign) + n / 10
JOIN vendors_credential l ON l.id = c.credential_id
CROSS JOIN LATERAL (SELECT now() - (%(jobs)s - n) * interval '90 days' / %(jobs)s AS at,
    CASE WHEN n < %(jobs)s * 0.87 THEN 'LOGGED' WHEN n < %(jobs)s * 0.97 THEN 'DISPATCHED'
        WHEN n < %(jobs)s * 0.99 THEN 'RENDERED' WHEN n %% 2 = 0 THEN 'STOPPED' ELSE 'LOGGED' END AS status) s;
UPDATE campaigns_job SET status = 'SENDING', heartbeat_at = now() WHERE id IN (
    SELECT id FROM campaigns_job WHERE status = 'DISPATCHED' ORDER BY id LIMIT 50);
UPDATE campaigns_job SET status = 'P_ASSIGNING', remaining = 5 WHERE id IN (
    SELECT id FROM campaigns_job WHERE status = 'DISPATCHED' ORDER BY id DESC LIMIT 40);
INSERT INTO campaigns_job (campaign_id, sponsor_id, vendor_id, credential_id, parent_id, status, first_message, size,
    remaining, fence, revision, waits_for, accepted, refused, in_doubt, expired, created_at, dispatched_at, started_at,
    finished_at, stopped_by)
SELECT campaign_id, sponsor_id, vendor_id, credential_id, id, CASE n WHEN 4 THEN 'DISPATCHED' ELSE 'LOGGED' END,
    first_message + n, 1, 0, 1, 0, '', (n < 4)::int, 0, 0, 0, created_at, created_at, created_at, NULL, ''
FROM campaigns_job, generate_series(0, 4) n WHERE status = 'P_ASSIGNING';
INSERT INTO campaigns_message (id, campaign_id, recipient, params, dequeued_at, sent_at, delivered_at, in_doubt_at,
    message_id, error_code, error_sub_type)
SELECT j.first_message + n, j.campaign_id, 'r' || (j.first_message + n) || '@example.com', '{}', j.started_at,
    j.started_at, CASE WHEN NOT k.doubt THEN j.finished_at END, CASE WHEN k.doubt THEN j.finished_at END,
    CASE WHEN NOT k.doubt AND NOT k.bad AND j.started_at IS NOT NULL THEN 'v' || (j.first_message + n) END,
    CASE WHEN k.bad THEN 'bounced' END, CASE WHEN k.doubt THEN 'no answer before the deadline' END
FROM ((SELECT * FROM campaigns_job WHERE parent_id IS NULL ORDER BY id DESC LIMIT %(messages)s / 10)
        UNION SELECT * FROM campaigns_job WHERE status = 'SENDING') j,
    generate_series(0, 9) n,
    LATERAL (SELECT n = 0 AND j.refused > 0 AS bad, n = 1 AND j.in_doubt > 0 AS doubt) k;
INSERT INTO campaigns_claim (job_id, fence, at, messages)
SELECT id, fence, now(), ARRAY(SELECT first_message + n FROM generate_series(0, 3) n) FROM campaigns_job
WHERE status = 'SENDING';
INSERT INTO vendors_minute (vendor_id, at, share, accepted, refused, in_doubt)
SELECT v.id, date_trunc('minute', now()) - n * interval '1 minute', s, 40, 1, 0
FROM vendors_vendor v, generate_series(0, 1440) n, generate_series(0, 3) s;
"""


def operators() -> None:
    from campaigns.models import Entitlement, Sponsor
    from vendors.models import Credential, RateLimit, Vendor

    Sponsor.objects.bulk_create(Sponsor(name=f"Sponsor {n}") for n in range(SPONSORS))
    for n in range(VENDORS):
        channel = ("email", "print", "sms")[n % 3]
        vendor = Vendor.objects.create(slug=f"vendor-{n}", name=f"Vendor {n}", channel=channel)
        RateLimit.objects.create(vendor=vendor, units=5, seconds=60)
        Credential.objects.create(vendor=vendor, exclusive=n % 2 == 0)
        may = (Entitlement(sponsor=sponsor, vendor=vendor) for sponsor in Sponsor.objects.all())
        Entitlement.objects.bulk_create(may, ignore_conflicts=True)
