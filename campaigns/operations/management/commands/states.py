"""`manage.py states`: prints docs/states.md."""

from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from campaigns.doors import labels
from campaigns.engine.lifecycle import GROUPS, MOVES, Move
from campaigns.models import Message, ReportKind
from campaigns.models.states import OWN_ENDS, PARENTS

# A message's state is the set of its non-null columns; the model's CHECK constraints allow these sets only.
COLUMNS = ("dequeued_at", "sent_at", "delivered_at", "in_doubt_at", "message_id", "error_code", "report")
ACCEPTED = ("dequeued_at", "sent_at", "delivered_at", "message_id")
SHAPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("waiting", ()),
    ("in flight: also in a claim of its job's sender", ()),
    ("accepted by the vendor", ACCEPTED),
    ("accepted, and reported by the vendor as delivered", (*ACCEPTED, "report")),
    ("refused by the vendor", ("dequeued_at", "sent_at", "delivered_at", "error_code")),
    ("in doubt: the answer is lost", ("dequeued_at", "sent_at", "in_doubt_at")),
    ("expired before a call (error_code is 'expired')", ("dequeued_at", "error_code")),
    ("suppressed: nobody may write to its recipient (error_code is 'suppressed')", ("dequeued_at", "error_code")),
)
HEAD = """# States

Made by `manage.py states` from campaigns/engine/lifecycle.py and the models; a test keeps it fresh. A job is created
with its first status; one function, `lifecycle.move`, makes every change, as a conditional UPDATE by this table. *Who*
is for readers: nothing checks it, but a change by a *person* increments the job's revision."""
LEAVES_BEGIN = [
    "[*] --> RENDERED: create for the night",
    "[*] --> READY: create for a time, or to send now",
    "[*] --> DISPATCHED: a request of the API",
    "[*] --> ENQUEUED: a mailcaster cuts a child",
    "[*] --> DISPATCHED: a child goes by another vendor of the route",
    "[*] --> RECOVERING: beside it, what a lost sender left",
]
PARENTS_BEGIN = ["[*] --> P_QUEUED: a large request of the API"]


class Command(BaseCommand):
    help = "Prints docs/states.md: the moves that jobs may make, and the states of messages."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(states_page())


def states_page() -> str:
    """Return the text of docs/states.md, without the last newline."""
    leaves = {verb: move for verb, move in MOVES.items() if move.target not in PARENTS}
    parents = {verb: move for verb, move in MOVES.items() if move.target in PARENTS}
    parts = [
        HEAD,
        "## Leaf jobs: small ones and children (documents 000, 001)",
        *_move_rows(leaves, LEAVES_BEGIN),
        "## Parent jobs (document 003)",
        *_move_rows(parents, PARENTS_BEGIN),
        "## What users look up (document 000)",
        _markdown_table(("Word", "Statuses"), ([group, ", ".join(statuses)] for group, statuses in GROUPS.items())),
        "A stopped job is LOGGED once its last calls are answered. Users still find it among the stopped ones, unless "
        "the stop came after its last call.",
        "## Messages (document 001)",
        _markdown_table(("State", *COLUMNS, "Users see"), map(_shape_cells, SHAPES)),
        f"Messages left uncalled by a stop are shown as {labels.STOPPED}, messages reported as bounced as "
        f"{labels.BOUNCED}.",
    ]
    return "\n\n".join(parts)


def _move_rows(moves: dict[str, Move], births: list[str]) -> Iterator[str]:
    rows = ([verb, ", ".join(m.sources), m.target, m.who, m.why] for verb, m in moves.items())
    yield _markdown_table(("Verb", "From", "To", "Who", "Why"), rows)
    arrows = births + [f"{source} --> {m.target}: {verb}" for verb, m in moves.items() for source in m.sources]
    yield "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {arrow}" for arrow in arrows), "```"])


def _shape_cells(shape: tuple[str, tuple[str, ...]]) -> list[str]:
    name, columns = shape
    return [name, *("set" if column in columns else "" for column in COLUMNS), label_of(shape)]


def label_of(shape: tuple[str, tuple[str, ...]], *, stopped: bool = False) -> str:
    """Return the label of a message of that shape for users."""
    return labels.label_of_message(message_of_shape(shape), in_flight=shape[0].startswith("in flight"), stopped=stopped)


def message_of_shape(shape: tuple[str, tuple[str, ...]]) -> Message:
    """Return an unsaved message of that shape."""
    name, columns = shape
    code = next((one for one in OWN_ENDS if name.startswith(one)), "bounce")
    texts = {"message_id": "id-1", "error_code": code, "report": ReportKind.DELIVERED.value}
    values: dict[str, Any] = {column: texts.get(column) or timezone.now() for column in columns}
    if "report" in columns:
        values |= {"report_at": timezone.now(), "report_no": 0}
    return Message(**values)


def _markdown_table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
