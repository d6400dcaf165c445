"""docs/states.md says what the code does, and the database admits exactly the shapes that it lists."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import IntegrityError, transaction

from campaigns.engine.lifecycle import GROUPS, MOVES
from campaigns.models import Message
from campaigns.models.states import Status
from campaigns.operations.management.commands.states import COLUMNS, SHAPES, label_of, message_of_shape
from tests import factories

LABELS = ["Waiting", "Sending", "Sent", "Delivered", "Failed", "Needs attention", "Expired", "Suppressed"]
STATES = Path(settings.BASE_DIR) / "docs" / "states.md"


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture) -> None:
    call_command("states")
    assert STATES.read_text() == capsys.readouterr().out, "run: manage.py states > docs/states.md"


def test_every_status_can_be_reached_and_belongs_to_one_group() -> None:
    reached = {move.target for move in MOVES.values()} | {Status.RENDERED, Status.READY}
    assert reached == set(Status)
    assert sorted(status for group in GROUPS.values() for status in group) == sorted(Status)


@pytest.mark.django_db
def test_the_database_admits_the_listed_shapes_of_a_message_and_no_other() -> None:
    campaign = factories.campaign(1)
    listed = {frozenset(columns): name for name, columns in SHAPES}
    admitted = set()
    for count in range(len(COLUMNS) + 1):
        for columns in combinations(COLUMNS, count):
            name = listed.get(frozenset(columns), "refused by the vendor")
            if _stored(message_of_shape((name, columns)), campaign):
                admitted.add(frozenset(columns))
    assert admitted == set(listed)


def _stored(row: Message, campaign: Any) -> bool:
    row.id, row.campaign, row.recipient = campaign.first_message + 1, campaign, "x@sandbox.example"
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            row.delete()
        return True
    except IntegrityError:
        return False


@pytest.mark.parametrize(
    ("shape", "word"),
    list(zip(SHAPES, LABELS, strict=True)),
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_each_shape_has_its_word(shape: Any, word: str) -> None:
    assert label_of(shape) == word


def test_what_a_stop_left_uncalled_is_stopped_and_the_rest_keeps_its_word() -> None:
    assert [label_of(shape, stopped=True) for shape in SHAPES] == ["Stopped", *LABELS[1:]]
