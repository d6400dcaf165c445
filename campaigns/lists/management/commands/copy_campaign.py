"""`manage.py copy_campaign`: copies a campaign's message into a draft, to continue in the browser."""

from argparse import ArgumentParser
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from campaigns.lists.drafts import copying
from campaigns.lists.intake import BadInput
from campaigns.models import Campaign


class Command(BaseCommand):
    help = (
        "Makes a draft of a campaign: its message, files, sender and options, without recipients and without a time. "
        "Continue in the browser, at /drafts/NUMBER/message/. Exit codes: 0 done, 1 unknown campaign or user, or the "
        "sponsor has too many drafts, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("campaign", type=int, metavar="CAMPAIGN", help="its number")
        parser.add_argument("--name", help="of the new campaign; else as before")
        parser.add_argument("--by", metavar="USER", help="whose draft it is, for the list of drafts")
        parser.add_argument("--key", metavar="KEY", help="said again with the same key, there is one draft")

    def handle(self, *args: Any, **options: Any) -> None:
        found = Campaign.objects.select_related("sponsor", "credential__vendor").filter(pk=options["campaign"]).first()
        if found is None:
            raise CommandError(f"there is no campaign {options['campaign']}")
        user = User.objects.filter(username=options["by"]).first() if options["by"] else None
        if options["by"] and user is None:
            raise CommandError(f"there is no user {options['by']!r}")
        try:
            draft = copying.copy_campaign(found, options["key"] or str(uuid4()), user, options["name"] or found.name)
        except BadInput as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"draft {draft.pk}: {draft.name}, at /drafts/{draft.pk}/message/")
