"""The class of a template: its owner chooses it on the template's page, and nobody else."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.models import Sponsor
from tests.vendors.test_ownership import alpha, beta, user_of
from vendors.history import Actor
from vendors.mail_classes import MailClass

__all__ = ["alpha", "beta", "user_of"]
pytestmark = pytest.mark.django_db


def test_only_its_sponsor_chooses_the_class_of_a_template(
    user_of: Callable[..., Client], alpha: Sponsor, beta: Sponsor
) -> None:
    made = versions.add_version(alpha.pk, "Hours", "email", TemplateContent("Hello", "Good day"), Actor("ann"))
    template = made.version.template
    address, usual = reverse("template-class", args=[template.pk]), MailClass.USUAL
    for sponsor, status in ((beta, 404), (alpha, 302)):
        answer = user_of([sponsor], "campaign owner").post(address, {"mail_class": usual.word})
        template.refresh_from_db()
        assert (answer.status_code, template.mail_class == usual) == (status, status == 302)
