"""The page about SECRET_KEY is followed step by step, and all that has left the house under a key works afterwards."""

import hashlib
import hmac
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from campaigns.content import return_paths
from campaigns.content.return_paths import ReturnPaths
from campaigns.doors import token_keys
from campaigns.doors.front import keys
from campaigns.engine.suppressed import digests
from campaigns.integrations.webhooks import events
from campaigns.models import ApiKey, FormerSecretKey, Identity, Message, Suppression, Webhook
from campaigns.suppression import links, lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.front.program import Program, forget, fresh
from tests.suppression.test_unsubscribe import job, token
from vendors import report_keys
from vendors.models import Credential

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
PAGE = Path(__file__).parents[2] / "docs/how-to/rotate-keys.md"
STEPS = re.findall(r"^\d\. (.+)", PAGE.read_text().partition("\n## SECRET_KEY\n")[2], re.MULTILINE)


def hash_as_before(program: Program, secret: str) -> None:
    """As versions before this one have stored it."""
    old = hmac.digest(secret.encode(), program.token.encode(), hashlib.sha256)
    ApiKey.objects.filter(pk=program.key.pk).update(digest=old, hashed=ApiKey.Hashed.SECRET_KEY)


def start_anew() -> None:
    """What processes remember is gone."""
    forget()
    token_keys.known.forget_value()
    digests.known.forget_value()


def status(program: Program) -> int:
    start_anew()
    return Client(headers={"Authorization": f"Bearer {program.token}"}).get("/api/v1/services").status_code


class Rotation:
    """Follows the page by the words with which its steps begin."""

    def __init__(self, settings: Any, new: str) -> None:
        self._settings, self._new = settings, new
        self._steps: dict[str, Callable[[], Any]] = {
            "Put the old key into `SECRET_KEY_FALLBACKS` and the new one into `SECRET_KEY`": self._put,
            "Start all processes anew": start_anew,
            "`manage.py rotate_keys`": lambda: call_command("rotate_keys"),
            "Take the old key out of `SECRET_KEY_FALLBACKS` and start all processes anew": self._take_out,
        }

    def follow(self, step: str) -> None:
        [do] = [do for begin, do in self._steps.items() if step.startswith(begin)]
        do()

    def _put(self) -> None:
        self._settings.SECRET_KEY, self._settings.SECRET_KEY_FALLBACKS = self._new, [self._settings.SECRET_KEY]

    def _take_out(self) -> None:
        self._settings.SECRET_KEY_FALLBACKS = []
        start_anew()


class Installation:
    """One of each kind of thing that a key has made, and what it must still do."""

    def __init__(self) -> None:
        self.login = factories.credential(secret={"token": "sesame"})
        self.job = job()
        self.link = token(self.job)
        self.subscription = links.read_link(self.link)
        reference = Message.objects.get(pk=self.job.first_message).reference
        self.path = ReturnPaths("bounces@brand.example", return_paths.return_path_keys()).of(reference)
        self.uuid = return_paths.read_return_path(self.path, "return-path")
        lists.add_suppressions(None, "email", [NewSuppression("ann@example.com", "by_hand")])
        self.hook, self.secret = events.add_program_webhook(self.job.sponsor_id, "https://hooks.example/in", [], False)
        self.reports = report_keys.rotate_key(self.login.vendor, timezone.now())
        self.program = Program(self.job.campaign.sponsor)

    def check(self) -> None:
        start_anew()
        assert self.subscription and links.read_link(self.link) == self.subscription, "a link in a letter of last year"
        assert token(self.job) == self.link
        assert self.uuid and return_paths.read_return_path(self.path, "return-path") == self.uuid, (
            "a bounce that comes late"
        )
        assert Credential.objects.get(pk=self.login.pk).secret == {"token": "sesame"}
        hook, at = Webhook.objects.get(pk=self.hook.pk), timezone.now()
        assert events.sign_event(hook, "name", at, "body") == events.sign_event(self.hook, "name", at, "body")
        assert hook.secret == {"key": self.secret} and hook.pk == self.hook.pk
        found = report_keys.reporting_vendor(self.login.vendor.slug, timezone.now())
        assert found and found.common and self.reports in repr(list(found.common.source.secrets))
        digest = digests.digest_address(digests.digest_key() or b"", "email", "Ann@example.com")
        assert list(Suppression.objects.values_list("digest", flat=True)) == [digest]
        list(Identity.objects.all())  # their keys open
        assert status(self.program) == 200


def test_all_that_has_left_under_a_key_works_after_each_step_of_the_page_and_after_three_rotations(
    settings: Any,
) -> None:
    settings.PUBLIC_URL = "https://mail.example.org"
    assert len(STEPS) == 4, "the page has other steps than this test knows"
    start_anew()
    here = Installation()
    idle, busy, revoked = Program(), Program(), Program()
    for program in (idle, busy, revoked):
        hash_as_before(program, settings.SECRET_KEY)
    ApiKey.objects.filter(pk=revoked.key.pk).update(revoked_at=timezone.now())
    for new in ("the second key", "the third key", "the fourth key"):
        rotation = Rotation(settings, new)
        for step in STEPS:
            rotation.follow(step)
            here.check()
            assert status(busy) == 200
            assert status(revoked) == status(Stranger()) == 401
        assert settings.SECRET_KEY_FALLBACKS == []
    assert status(idle) == 200, "nobody has used it in all that time"
    call_command("rotate_keys")
    assert not FormerSecretKey.objects.exists(), "no key needs one any more"
    assert status(idle) == status(busy) == 200


class Stranger(Program):
    """With a key that nobody has made."""

    def __init__(self) -> None:
        self.token = "mh_live_00000000_" + "A" * 32


def test_a_key_of_the_version_before_is_found_and_stays_as_it_is_beside_it(settings: Any) -> None:
    """Its processes may still run: they look for the hash that they know."""
    program = Program()
    hash_as_before(program, settings.SECRET_KEY)
    before = ApiKey.objects.get()
    assert status(program) == 200
    after = ApiKey.objects.get()
    assert (after.digest, after.hashed) == (before.digest, "secret_key")


def test_no_secret_is_kept_for_keys_that_need_none(settings: Any) -> None:
    Program()
    settings.SECRET_KEY_FALLBACKS = ["an older one"]
    assert keys.keep_former_secrets() == 0 and not FormerSecretKey.objects.exists()
    hash_as_before(Program(), "an older one")
    assert keys.keep_former_secrets() == keys.keep_former_secrets() == 1
