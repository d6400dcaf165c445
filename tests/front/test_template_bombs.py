"""One key's template of 400 bytes neither stops the API nor fills its answer (B1)."""

import pytest

from tests.campaigns.elsewhere import where
from tests.front.program import Program, api_vendor, fresh, letter, problem
from tests.texts.bombs import LEVELS, LONGEST_FAULT, USED, nested

__all__ = ["fresh", "where"]
pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db(transaction=True)]
DRY = "/api/v1/messages?dry_run=true"
FIELDS = {"x": "short", "y": {"a": "b"}, "l": ["a", "b"]}


@pytest.mark.parametrize("path", ["/api/v1/messages", DRY])
@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("levels", LEVELS)
def test_a_bomb_is_refused_in_a_sentence(levels, used, path):
    recipients = [{"to": "ann@sandbox.example", "fields": FIELDS}]
    for part in (
        {"body": nested(levels, used)},
        {"subject": nested(levels, used)},
        {"html": True, "body": nested(levels, used)},
    ):
        answer = Program().send(letter(api_vendor(), recipients=recipients, **part), path=path)
        found = problem(answer, "validation", 422)
        assert len(answer.content) < 2_000
        assert all(len(one["detail"]) <= LONGEST_FAULT for one in found["errors"])


def test_fields_that_many_recipients_lack_are_named_in_short():
    body = "".join(f"{{{{ {'m' * 150}{number} }}}}" for number in range(900))
    recipients = [{"to": f"p{number}@sandbox.example"} for number in range(1_000)]
    answer = Program().send(letter(api_vendor(), body=body, recipients=recipients), path=DRY)
    assert answer.status_code == 422 and len(answer.content) < 50 * (LONGEST_FAULT + 200) + 2_000


@pytest.mark.parametrize("levels", LEVELS)
def test_a_template_that_is_kept_is_a_bomb_for_nobody(levels):
    program = Program()
    added = program.send(
        {"name": "bomb", "channel": "email", "subject": "Hi", "body": nested(levels)}, path="/api/v1/templates"
    )
    assert added.status_code == 201
    asked = letter(api_vendor(), template="bomb@1", recipients=[{"to": "ann@sandbox.example", "fields": FIELDS}])
    del asked["subject"], asked["body"]
    answer = program.send(asked, path=DRY)
    assert answer.status_code == 422 and "steps" in answer.json()["detail"] and len(answer.content) < 2_000


def test_what_fails_for_every_recipient_is_paid_for():
    """To say why takes longer than many a letter."""
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"x": "a"}} for number in range(1_000)]
    program = Program()
    seen = program.send(letter(api_vendor(), body="{{ x.y }}", recipients=recipients), path=DRY)
    assert seen.status_code == 422 and len(seen.json()["errors"]) == 50
