"""What a question is, and the conditions that many of them share."""

from dataclasses import dataclass

from campaigns.lifecycle import DONE, PARENTS, Status


@dataclass(frozen=True, slots=True)
class Question:
    """breaches: a SELECT of one text column."""

    promise: str
    text: str
    breaches: str


def among(statuses: tuple[Status, ...]) -> str:
    return "(" + ", ".join(f"'{status}'" for status in statuses) + ")"


DAY = "date_trunc('minute', now() - interval '1 day') + interval '2 minutes'"
FRESH = f"(j.status NOT IN {among(DONE)} OR j.finished_at > clock_timestamp() - interval '1 day')"
LEAF = f"j.status NOT IN {among(PARENTS)}"
SLICE = "m.id >= j.first_message AND m.id < j.first_message + j.size"
STARTED = "(j.status IN ('ENQUEUED', 'SENDING', 'RECOVERING', 'SENT') " + (
    "OR j.status IN ('DISPATCHED', 'STOPPED') AND j.started_at IS NOT NULL)"
)
ANSWERED = "(m.message_id IS NOT NULL OR m.error_code IS NOT NULL OR m.in_doubt_at IS NOT NULL)"
PATIENCE = "clock_timestamp() - %(patience)s * interval '1 second'"
# When the call was made, nobody knows any more of a message that waited again when it turned out to be accepted: its
# sent_at is the time at which that was learned.
KNOWN = "c.sent_at IS DISTINCT FROM c.delivered_at"
WAITING = "o.sent_at IS NULL AND o.message_id IS NULL AND o.error_code IS NULL"
