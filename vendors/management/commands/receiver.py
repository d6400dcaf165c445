"""`manage.py receiver`: receiving domains that wait or have limits, such as gmail."""

from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandError
from django.db import transaction
from django.utils import timezone

from vendors import deferrals, history, locks
from vendors.management import arguments, facts
from vendors.management.resources import ResourceCommand, argument, verb
from vendors.models import AT_A_TIME, Credential, ReceiverLimit, ReceiverWait, Vendor
from vendors.receivers import OTHERS, known_groups
from vendors.said import Said, gettext_noop

DAY = 86_400.0
LIMITED = gettext_noop("limits of %(receiver)s: %(before)s → %(after)s")


def wait_facts(row: ReceiverWait) -> dict[str, Any]:
    return {
        "vendor": row.credential.vendor.slug,
        "credential": row.credential.name,
        "receiver": row.receiver,
        "since": row.since,
        "until": row.until,
        "cause": row.cause,
        "answers": row.answers,
        "answer": row.answer,
    }


class Command(ResourceCommand):
    help = (
        "Receiving domains, grouped by provider (gmail, outlook, ...): list those that wait, resume, limit. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    one_object = "a receiver that waits"
    shown = ("vendor", "credential", "receiver", "until", "cause", "answers", "answer")
    row_facts = staticmethod(wait_facts)

    @verb("those that wait or have accepted nothing since, of all vendors or of one", argument("vendor", nargs="?"))
    def do_list(self, vendor: str | None, **options: Any) -> None:
        rows = Credential.objects.all()
        logins = rows.filter(vendor=arguments.vendor(vendor)) if vendor else rows
        self.write_rows(deferrals.receiver_waits(logins.values_list("pk", flat=True)))

    @verb(
        "call it again as if it had not asked to wait",
        argument("vendor"),
        argument("receiver", help="as `receiver list` names it"),
        argument("--credential", metavar="NAME", help="only there"),
    )
    def do_resume(self, vendor: str, receiver: str, credential: str | None, **options: Any) -> None:
        of = arguments.vendor(vendor)
        logins = [arguments.credential(of, credential)] if credential else list(of.credentials.all())
        by = history.Actor(arguments.person())
        ended = [login.name for login in logins if deferrals.end_wait(login, receiver, by)]
        said = (
            f"called again, also by campaigns that wait, within a minute: {', '.join(ended)}"
            if ended
            else "did not wait"
        )
        self.tell(f"{vendor}: {receiver} {said}", {"vendor": vendor, "receiver": receiver, "resumed": ended})

    @verb(
        "replace its own limits, in force immediately beside those of the vendor; none: show them",
        argument("vendor"),
        argument("receiver", help=f"a group of the table, or '{OTHERS}' for all other domains together"),
        argument("limits", nargs="*", metavar="N/SECONDS"),
        argument("--at-a-time", type=int, metavar="N", help="calls at the same time"),
        argument("--warm-up", type=int, metavar="N", help="so many today, half as many again on each day that follows"),
        argument("--growth", type=float, default=1.5, metavar="FACTOR", help="of a warm-up, from 1 to 10"),
        argument("--credential", metavar="NAME", help="only there"),
        argument("--clear", action="store_true", help="no limit any more"),
    )
    def do_limit(self, vendor: str, receiver: str, limits: list[str], **options: Any) -> None:
        of = arguments.vendor(vendor)
        if receiver != OTHERS and receiver not in known_groups():
            raise CommandError(f"there is no group {receiver!r}; there are: {', '.join([*known_groups(), OTHERS])}")
        if of.channel != Vendor.Channel.EMAIL:
            raise CommandError(f"{vendor} sends no e-mail")
        login = arguments.credential(of, options["credential"]) if options["credential"] else None
        key: dict[str, Any] = {"vendor": of, "credential": login, "receiver": receiver}
        rows = [ReceiverLimit(units=units, seconds=seconds, **key) for units, seconds in arguments.windows(limits)]
        if options["at_a_time"] is not None:
            rows.append(ReceiverLimit(units=options["at_a_time"], seconds=AT_A_TIME, **key))
        if options["warm_up"] is not None:
            begins = {"grows_from": self._today(of), "growth": options["growth"]}
            rows.append(ReceiverLimit(units=options["warm_up"], seconds=DAY, **begins, **key))
        if rows and options["clear"]:
            raise CommandError("give new limits or --clear, not both")
        if rows or options["clear"]:
            self._replace(of, key, rows)
        now = self._describe(key)
        self.tell(f"{login or of} {receiver}: {now}", {"vendor": vendor, "receiver": receiver, "limits": now})

    def _replace(self, of: Vendor, key: dict[str, Any], rows: list[ReceiverLimit]) -> None:
        for row in rows:
            arguments.check(row)
        with transaction.atomic():
            locks.lock_vendor(of.pk)
            before = self._describe(key)
            ReceiverLimit.objects.filter(**key).delete()
            ReceiverLimit.objects.bulk_create(rows)
            changed = Said(LIMITED, receiver=key["receiver"], before=before, after=self._describe(key))
            facts.changed(key["credential"] or of, changed)

    @staticmethod
    def _describe(key: dict[str, Any]) -> str:
        return ", ".join(map(str, ReceiverLimit.objects.filter(**key))) or "no limit"

    @staticmethod
    def _today(of: Vendor) -> date:
        return timezone.localdate(timezone=ZoneInfo(of.time_zone))
