"""`manage.py webhook`: the addresses to which events are posted, and their last calls."""

from contextlib import suppress
from typing import Any

from django.core.management.base import CommandError

from campaigns.doors.sponsors import OF_SPONSOR, filter_by_sponsor, named_sponsor
from campaigns.integrations import listening
from campaigns.integrations.webhooks import events
from campaigns.models import Webhook, WebhookCall
from campaigns.models.api_clients import Event
from campaigns.tasks import notify_webhooks
from vendors.history import Actor
from vendors.management.arguments import shell_user
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb
from vendors.said import Said, gettext_noop
from vendors.webhook_http import Forbidden

HOOK = declare_argument("id", type=int)
CALLS_SHOWN = ("id", "kind", "event", "created_at", "tries", "http_status", "result", "taken_at", "next_at")
MOST = 100
PORT = 8055  # of a local receiver


def webhook_facts(row: Webhook) -> dict[str, Any]:
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


class Command(ResourceCommand):
    help = (
        "Add, list, enable, disable, rotate, remove, listen, calls, redeliver. Events are signed (Standard Webhooks); "
        "the secret is shown once. Exit codes: 0 done (or it was so already), 1 unknown or bad value, 2 usage."
    )
    shown = ("id", "sponsor", "url", "events", "test", "enabled", "disabled_reason")
    row_facts = staticmethod(webhook_facts)

    @declare_verb(
        "an address for a sponsor's events",
        declare_argument("--sponsor", required=True, metavar="NAME"),
        declare_argument("--url", required=True),
        declare_argument("--event", action="append", default=[], choices=Event.values, help="default: all"),
        declare_argument("--test", action="store_true", help="events of test keys' sessions, and only of those"),
    )
    def do_add(self, **options: Any) -> None:
        sponsor = named_sponsor(options["sponsor"])
        try:
            row, secret = events.create_webhook(
                sponsor, options["url"], options["event"], options["test"], Actor(shell_user())
            )
        except Forbidden as error:
            raise CommandError(f"{options['url']}: {error}") from error
        sentence = f"webhook {row.pk}; its secret is shown once: {secret}"
        self.write_result(sentence, {**webhook_facts(row), "secret": secret})

    @declare_verb("all of them", OF_SPONSOR)
    def do_list(self, **options: Any) -> None:
        rows = filter_by_sponsor(Webhook.objects.select_related("sponsor"), options["sponsor"])
        self.write_rows(rows)

    @declare_verb("events from now on are posted again", HOOK)
    def do_enable(self, **options: Any) -> None:
        row = _named_webhook(options["id"])
        events.enable_webhook(row, Actor(shell_user()))
        self.write_result(f"webhook {row.pk}: enabled", webhook_facts(_named_webhook(row.pk)))

    @declare_verb("no more posts", HOOK)
    def do_disable(self, **options: Any) -> None:
        row = _named_webhook(options["id"])
        events.disable_webhook(row, Said(gettext_noop("by hand")), Actor(shell_user()))
        self.write_result(f"webhook {row.pk}: disabled", webhook_facts(_named_webhook(row.pk)))

    @declare_verb("a new secret; for a day the old one signs, too", HOOK)
    def do_rotate(self, **options: Any) -> None:
        row = _named_webhook(options["id"])
        secret = events.rotate_secret(row.pk, Actor(shell_user()))
        sentence = f"webhook {row.pk}; its new secret is shown once: {secret}"
        self.write_result(sentence, {**webhook_facts(row), "secret": secret})

    @declare_verb("with the records of its calls", HOOK)
    def do_remove(self, **options: Any) -> None:
        events.remove_webhook(_named_webhook(options["id"]).pk, Actor(shell_user()))
        facts = {"id": options["id"], "removed": True}
        self.write_result(f"webhook {options['id']}: removed", facts)

    @declare_verb(
        "a local receiver to try it with: http://127.0.0.1:PORT/, within WEBHOOK_NETWORKS",
        declare_argument("id", type=int, nargs="?", help="check the signatures of this webhook"),
        declare_argument("--port", type=int, default=PORT, metavar="N", help=f"default: {PORT}"),
        declare_argument("--count", type=int, default=0, metavar="N", help="end after N posts; default: at Ctrl-C"),
        with_json=False,
    )
    def do_listen(self, **options: Any) -> None:
        secrets = [_named_webhook(options["id"]).secret["key"]] if options["id"] else []
        try:
            server = listening.listen_for_events(options["port"], secrets, self._write_line)
        except OSError as error:
            raise CommandError(f"cannot listen on 127.0.0.1:{options['port']}: {error.strerror}") from error
        self._write_line(f"listening on http://127.0.0.1:{server.server_port}/; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            listening.take_posts(server, options["count"])

    def _write_line(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    @declare_verb(f"its last {MOST} calls", HOOK)
    def do_calls(self, **options: Any) -> None:
        rows = WebhookCall.objects.filter(webhook=_named_webhook(options["id"]))[:MOST]
        self.write_facts([{name: _call_value(row, name) for name in CALLS_SHOWN} for row in rows], CALLS_SHOWN)

    @declare_verb("post one event again", declare_argument("call", type=int))
    def do_redeliver(self, **options: Any) -> None:
        call = options["call"]
        if not events.repeat_call(call, Actor(shell_user())):
            raise CommandError(f"there is no call {call}, or its webhook is disabled")
        notify_webhooks()
        self.write_result(f"call {call}: will be posted again", {"call": call})


def _call_value(row: WebhookCall, name: str) -> Any:
    value = getattr(row, name)
    return f"evt_{value.hex}" if name == "event" else value


def _named_webhook(id: int) -> Webhook:
    found = Webhook.objects.select_related("sponsor").filter(pk=id).first()
    if found is None:
        raise CommandError(f"there is no webhook {id}")
    return found
