"""`manage.py answers`: lists and decides recipients' answers that no rule is sure of."""

from typing import Any

from django.core.management.base import CommandError

from campaigns.audience import unread_answers
from campaigns.doors.sponsors import OF_SPONSOR, filter_by_sponsor
from campaigns.models import RecipientAnswer
from campaigns.operations.job_commands import add_limit, rows_to_list
from vendors.history import Actor
from vendors.management.arguments import shell_user
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb

STATES = ("unread", "stop", "read", "all")
ANSWERS = declare_argument("answer", nargs="+", type=int, metavar="ANSWER", help="its id in the list")


def answer_facts(row: RecipientAnswer) -> dict[str, Any]:
    return {
        "id": row.pk,
        "sponsor": row.sponsor.name if row.sponsor else None,
        "kind": row.kind,
        "perhaps_stop": row.near,
        "from": row.sender,
        "to": row.to,
        "text": row.text,
        "campaign": row.campaign,
        "state": row.outcome or "unread",
        "decided_by": row.decided_by or None,
        "at": row.written_at,
    }


class Command(ResourceCommand):
    help = (
        "What recipients wrote that no rule is sure of: list, stop, read. Stop suppresses the writer on the answer's "
        "channel. Exit codes: 0 done (or it was so already), 1 unknown answer, or its writer has sent START since, "
        "2 usage."
    )
    one_object = "an answer"
    shown = ("id", "sponsor", "kind", "perhaps_stop", "from", "text", "campaign", "state", "at")
    row_facts = staticmethod(answer_facts)

    @declare_verb(
        "unread ones, the oldest first",
        OF_SPONSOR,
        declare_argument("--state", choices=STATES, default="unread", help="others, the latest first"),
        lambda parser: add_limit(parser, "first"),
    )
    def do_list(self, sponsor: str | None, state: str, **options: Any) -> None:
        rows = filter_by_sponsor(RecipientAnswer.objects.select_related("sponsor"), sponsor)
        self.write_rows(unread_answers.filter_by_state(rows, state)[: rows_to_list(options)])

    @declare_verb("suppress the writer", ANSWERS)
    def do_stop(self, answer: list[int], **options: Any) -> None:
        self._decide_each(answer, unread_answers.treat_as_stop, "treated as stop")

    @declare_verb("take it out of the unread ones", ANSWERS)
    def do_read(self, answer: list[int], **options: Any) -> None:
        self._decide_each(answer, unread_answers.mark_read, "read")

    def _decide_each(self, ids: list[int], decide: Any, done: str) -> None:
        rows = RecipientAnswer.objects.select_related("sponsor").in_bulk(ids)
        if unknown := [str(one) for one in ids if one not in rows]:
            raise CommandError(f"there is no answer {', '.join(unknown)}: answers list --state all")
        for one in ids:
            try:
                changed = decide(one, Actor(shell_user()))
            except unread_answers.StartedSince as error:
                raise CommandError(f"answer {one}: {error}") from None
            self.write_row(rows[one], done if changed else "already so")
