"""`manage.py receiver`: receiving domains that wait or have limits, such as gmail."""

from typing import Any

from vendors import deferrals, history
from vendors.management import arguments
from vendors.management.resources import ResourceCommand, argument, verb
from vendors.models import Credential, ReceiverWait


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
        "Receiving domains, grouped by provider (gmail, outlook, ...): list those that wait, resume. "
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
