"""Pages on which templates are written, tried and sent are no way to stop them for everybody."""

import pytest

from campaigns.content.template_versions.versions import TemplateContent
from campaigns.models import Campaign
from tests.campaigns.elsewhere import where
from tests.owners.test_templates import NEW, sponsor, stored
from tests.owners.test_wizard import SOON, ann, login, make, press, put
from tests.texts.bombs import LEVELS, USED, nested

__all__ = ["ann", "login", "sponsor", "where"]
pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db]
SMALL = 100_000  # bytes of a page
SAMPLES = {"field.x": "short", "field.y": '{"a": "b"}', "field.l": '["a", "b"]'}


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("levels", LEVELS)
def test_the_editors_preview_of_a_bomb_is_a_sentence(levels, used, client, sponsor):
    given = NEW | {"sponsor": sponsor.pk, "body": nested(levels, used), "preview": "1"} | SAMPLES
    answer = client.post("/templates/new/", given)
    assert answer.status_code == 200 and len(answer.content) < SMALL
    assert "more than 50,000 steps" in answer.content.decode()


@pytest.mark.parametrize("levels", LEVELS)
def test_a_template_that_is_kept_is_shown_with_a_sentence(levels, client, sponsor):
    version = stored(sponsor, TemplateContent("Hello", nested(levels)))
    for page in (f"/templates/{version.template_id}/", f"/templates/{version.template_id}/edit/"):
        answer = client.get(page)
        assert answer.status_code == 200 and len(answer.content) < SMALL


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("levels", LEVELS)
def test_a_draft_with_a_bomb_is_checked_shown_and_not_sent(levels, used, client, login):
    draft = make(client, login, subject="Hello", text=nested(levels, used))
    page = put(client, draft, "email,x,y,l\nann@example.com,short,b,c\nbob@example.com,short,b,c\n")
    assert len(page.content) < SMALL and "every row would be left out" in page.content.decode()
    for step in ("message", "recipients", "check"):
        answer = client.get(f"/drafts/{draft.pk}/{step}/")
        assert answer.status_code in (200, 302) and len(answer.content) < SMALL
    press(client, draft, "send", **SOON)
    assert not Campaign.objects.exists()
