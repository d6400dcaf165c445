"""`manage.py webhook`: the addresses to which events are posted, and their last calls."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns.management.sponsors import named_sponsor
from campaigns.models import Webhook, WebhookCall
from campaigns.models.api_clients import Event
from campaigns.tasks import notify_webhooks
from campaigns.webhooks import events
from vendors.history import Actor
from vendors.management.arguments import person
from vendors.management.output import tell, write_rows
from vendors.webhook_http import Forbidden

SHOWN = ("id", "sponsor", "url", "events", "test", "enabled", "disabled_reason")
CALLS_SHOWN = ("id", "kind", "event", "created_at", "tries", "http_status", "result", "taken_at", "next_at")
MOST = 100


class Command(BaseCommand):
    help = (
        "Add, list, enable, disable, rotate, remove, calls, redeliver. Events are signed (Standard Webhooks); "
        "the secret is shown once. Exit codes: 0 done (or it was so already), 1 unknown or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        add = verbs.add_parser("add", help="an address for a sponsor's events")
        add.add_argument("--sponsor", required=True, metavar="NAME")
        add.add_argument("--url", required=True)
        add.add_argument("--event", action="append", default=[], choices=Event.values, help="default: all")
        add.add_argument("--test", action="store_true", help="events of test keys' sessions, and only of those")
        verbs.add_parser("list", help="all of them").add_argument("--sponsor", metavar="NAME")
        for verb, about in (
            ("enable", "events from now on are posted again"),
            ("disable", "no more posts"),
            ("rotate", "a new secret; for a day the old one signs, too"),
            ("remove", "with the records of its calls"),
            ("calls", f"its last {MOST} calls"),
        ):
            verbs.add_parser(verb, help=about).add_argument("id", type=int)
        verbs.add_parser("redeliver", help="post one event again").add_argument("call", type=int)
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_add(self, **options: Any) -> None:
        sponsor = named_sponsor(options["sponsor"])
        try:
            row, secret = events.create(sponsor, options["url"], options["event"], options["test"], Actor(person()))
        except Forbidden as error:
            raise CommandError(f"{options['url']}: {error}") from error
        sentence = f"webhook {row.pk}; its secret is shown once: {secret}"
        tell(self.stdout, sentence, {**_facts(row), "secret": secret}, options["json"])

    def do_list(self, **options: Any) -> None:
        rows = Webhook.objects.select_related("sponsor")
        if options["sponsor"]:
            rows = rows.filter(sponsor=named_sponsor(options["sponsor"]))
        write_rows(self.stdout, [_facts(row) for row in rows], options["json"], SHOWN)

    def do_enable(self, **options: Any) -> None:
        events.enable(_hook(options["id"]), Actor(person()))
        self._tell("enabled", options)

    def do_disable(self, **options: Any) -> None:
        events.disable(_hook(options["id"]), "by hand", Actor(person()))
        self._tell("disabled", options)

    def do_rotate(self, **options: Any) -> None:
        row = _hook(options["id"])
        secret = events.rotate(row.pk, Actor(person()))
        sentence = f"webhook {row.pk}; its new secret is shown once: {secret}"
        tell(self.stdout, sentence, {**_facts(row), "secret": secret}, options["json"])

    def do_remove(self, **options: Any) -> None:
        events.remove(_hook(options["id"]).pk, Actor(person()))
        facts = {"id": options["id"], "removed": True}
        tell(self.stdout, f"webhook {options['id']}: removed", facts, options["json"])

    def do_calls(self, **options: Any) -> None:
        rows = WebhookCall.objects.filter(webhook=_hook(options["id"]))[:MOST]
        write_rows(
            self.stdout, [{name: _of(row, name) for name in CALLS_SHOWN} for row in rows], options["json"], CALLS_SHOWN
        )

    def do_redeliver(self, **options: Any) -> None:
        call = options["call"]
        if not events.again(call, Actor(person())):
            raise CommandError(f"there is no call {call}, or its webhook is disabled")
        notify_webhooks()
        tell(self.stdout, f"call {call}: will be posted again", {"call": call}, options["json"])

    def _tell(self, what: str, options: dict[str, Any]) -> None:
        row = _hook(options["id"])
        tell(self.stdout, f"webhook {row.pk}: {what}", _facts(row), options["json"])


def _of(row: WebhookCall, name: str) -> Any:
    value = getattr(row, name)
    return f"evt_{value.hex}" if name == "event" else value


def _hook(id: int) -> Webhook:
    found = Webhook.objects.select_related("sponsor").filter(pk=id).first()
    if found is None:
        raise CommandError(f"there is no webhook {id}")
    return found


def _facts(row: Webhook) -> dict[str, Any]:
    return {
        "id": row.pk,
        "sponsor": row.sponsor.name,
        "url": row.url,
        "events": row.events,
        "test": row.test,
        "enabled": row.enabled,
        "disabled_reason": row.disabled_reason,
        "suspended_until": row.suspended_until,
    }
