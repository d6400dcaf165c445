"""`manage.py topic`: manages the topics of sponsors' campaigns."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import IntegrityError, transaction

from campaigns.management.sponsors import named_sponsor
from campaigns.models import Sponsor, Topic
from campaigns.operators import senders
from vendors.history import Actor
from vendors.management import arguments, facts
from vendors.management.output import tell, write_rows

SHOWN = ("sponsor", "name", "title", "archived")


class Command(BaseCommand):
    help = (
        "Topics of sponsors: add, list, set, archive, restore, remove. Recipients of a campaign with a topic can "
        "unsubscribe from it alone, or from everything of the sponsor. New campaigns cannot name an archived one. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        verbs.add_parser("list", help="all, or those of a sponsor").add_argument("sponsor", nargs="?")
        abouts = {
            "add": "a new one",
            "set": "change its title",
            "archive": "no new campaign can name it; recipients can still unsubscribe from it",
            "restore": "campaigns can name it again",
            "remove": "one that nothing names",
        }
        for verb, about in abouts.items():
            one = verbs.add_parser(verb, help=about)
            one.add_argument("sponsor")
            one.add_argument("name")
            if verb in ("add", "set"):
                one.add_argument("title", help="as recipients read it")
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object a topic")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_add(self, sponsor: str, name: str, title: str, **options: Any) -> None:
        try:
            with transaction.atomic():
                row = Topic(sponsor=named_sponsor(sponsor), name=name, title=title)
                arguments.check(row)
                row.save()
                facts.added(row)
        except IntegrityError:
            row = _named(named_sponsor(sponsor), name)
            if row.title != title:
                raise CommandError(f"{row} is already there, and its title is {row.title!r}") from None
            if row.archived_at:
                raise CommandError(f"{row} is already there, and archived: topic restore") from None
        tell(self.stdout, f"{row}: {row.title}", topic_facts(row), options["json"])

    def do_list(self, sponsor: str | None, **options: Any) -> None:
        rows = Topic.objects.select_related("sponsor")
        if sponsor:
            rows = rows.filter(sponsor=named_sponsor(sponsor))
        write_rows(self.stdout, map(topic_facts, rows), options["json"], SHOWN)

    def do_set(self, sponsor: str, name: str, title: str, **options: Any) -> None:
        row = _named(named_sponsor(sponsor), name)
        try:
            senders.rename_topic(row.pk, title, Actor(arguments.person()))
        except ValidationError as error:
            raise arguments.refused(error) from None
        row.refresh_from_db()
        tell(self.stdout, f"{row}: {row.title}", topic_facts(row), options["json"])

    def do_archive(self, sponsor: str, name: str, **options: Any) -> None:
        self._archive(_named(named_sponsor(sponsor), name), True, options)

    def do_restore(self, sponsor: str, name: str, **options: Any) -> None:
        self._archive(_named(named_sponsor(sponsor), name), False, options)

    def _archive(self, row: Topic, archived: bool, options: dict[str, Any]) -> None:
        changed = senders.archive_topic(row.pk, archived, Actor(arguments.person()))
        row.refresh_from_db()
        sentence = "archived" if archived else "restored"
        tell(self.stdout, f"{row}: {sentence if changed else 'already so'}", topic_facts(row), options["json"])

    def do_remove(self, sponsor: str, name: str, **options: Any) -> None:
        row = _named(named_sponsor(sponsor), name)
        if not senders.remove_topic(row, Actor(arguments.person())):
            why = "campaigns name it, or recipients unsubscribed from it"
            raise CommandError(f"{row} stays: {why}; archive it instead")
        removal = {"sponsor": sponsor, "name": name, "removed": True}
        tell(self.stdout, f"{sponsor}/{name}: removed", removal, options["json"])


def _named(of: Sponsor, name: str) -> Topic:
    """Return the sponsor's topic of that name."""
    found = Topic.objects.select_related("sponsor").filter(sponsor=of, name=name).first()
    if found is None:
        known = ", ".join(of.topics.values_list("name", flat=True)) or "none yet"
        raise CommandError(f"{of.name} has no topic {name!r}; it has: {known}")
    return found


def topic_facts(row: Topic) -> dict[str, Any]:
    archived = row.archived_at is not None
    return {"sponsor": row.sponsor.name, "name": row.name, "title": row.title, "archived": archived}
