"""Which campaigns have a time: of a hundred thousand jobs in a queue, theirs are found by this index."""

from django.db.models import Index, Q

TIMED = Index(
    fields=["id"],
    include=["send_at", "hours_from", "hours_to", "time_zone"],
    condition=Q(send_at__isnull=False) | Q(hours_from__isnull=False),
    name="campaign_timed",
)
