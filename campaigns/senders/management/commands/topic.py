"""`manage.py topic`: manages the topics of sponsors' campaigns."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import IntegrityError, transaction

from campaigns.doors.sponsors import filter_by_sponsor, find_of_sponsor, named_sponsor
from campaigns.models import Topic
from campaigns.senders import sender_changes
from vendors.history import Actor
from vendors.management import arguments, facts
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb

NAMED = (declare_argument("sponsor"), declare_argument("name"))
TITLE = declare_argument("title", help="as recipients read it")


def topic_facts(row: Topic) -> dict[str, Any]:
    archived = row.archived_at is not None
    return {"sponsor": row.sponsor.name, "name": row.name, "title": row.title, "archived": archived}


class Command(ResourceCommand):
    help = (
        "Topics of sponsors: add, list, set, archive, restore, remove. Recipients of a campaign with a topic can "
        "unsubscribe from it alone, or from everything of the sponsor. New campaigns cannot name an archived one. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    one_object = "a topic"
    shown = ("sponsor", "name", "title", "archived")
    row_facts = staticmethod(topic_facts)

    @declare_verb("all, or those of a sponsor", declare_argument("sponsor", nargs="?"))
    def do_list(self, sponsor: str | None, **options: Any) -> None:
        self.write_rows(filter_by_sponsor(Topic.objects.select_related("sponsor"), sponsor))

    @declare_verb("a new one", *NAMED, TITLE)
    def do_add(self, sponsor: str, name: str, title: str, **options: Any) -> None:
        try:
            with transaction.atomic():
                row = Topic(sponsor=named_sponsor(sponsor), name=name, title=title)
                arguments.check_row(row)
                row.save()
                facts.log_added(row)
        except IntegrityError:
            row = _named_topic(sponsor, name)
            if row.title != title:
                raise CommandError(f"{row} is already there, and its title is {row.title!r}") from None
            if row.archived_at:
                raise CommandError(f"{row} is already there, and archived: topic restore") from None
        self.write_row(row, row.title)

    @declare_verb("change its title", *NAMED, TITLE)
    def do_set(self, sponsor: str, name: str, title: str, **options: Any) -> None:
        row = _named_topic(sponsor, name)
        try:
            sender_changes.rename_topic(row.pk, title, Actor(arguments.shell_user()))
        except ValidationError as error:
            raise arguments.refused_error(error) from None
        row.refresh_from_db()
        self.write_row(row, row.title)

    @declare_verb("no new campaign can name it; recipients can still unsubscribe from it", *NAMED)
    def do_archive(self, sponsor: str, name: str, **options: Any) -> None:
        self._archive_row(_named_topic(sponsor, name), True)

    @declare_verb("campaigns can name it again", *NAMED)
    def do_restore(self, sponsor: str, name: str, **options: Any) -> None:
        self._archive_row(_named_topic(sponsor, name), False)

    def _archive_row(self, row: Topic, archived: bool) -> None:
        changed = sender_changes.archive_topic(row.pk, archived, Actor(arguments.shell_user()))
        self.write_row(row, "already so" if not changed else "archived" if archived else "restored")

    @declare_verb("one that nothing names", *NAMED)
    def do_remove(self, sponsor: str, name: str, **options: Any) -> None:
        row = _named_topic(sponsor, name)
        if not sender_changes.remove_topic(row, Actor(arguments.shell_user())):
            why = "campaigns name it, or recipients unsubscribed from it"
            raise CommandError(f"{row} stays: {why}; archive it instead")
        self.write_result(f"{sponsor}/{name}: removed", {"sponsor": sponsor, "name": name, "removed": True})


def _named_topic(sponsor: str, name: str) -> Topic:
    return find_of_sponsor(Topic.objects.all(), named_sponsor(sponsor), "topic", name)
