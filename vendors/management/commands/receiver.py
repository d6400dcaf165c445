"""`manage.py receiver`: receiving domains that wait or have limits, such as gmail."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from vendors import deferrals, history, receiver_domains, receiver_limits
from vendors.management import arguments
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb
from vendors.models import AT_A_TIME, Credential, ReceiverLimit, Vendor
from vendors.receivers import OTHERS, groups_of_domains, own_domains, plain_domain, table_group

DAY = 86_400.0


class Command(ResourceCommand):
    help = (
        "Receiving domains, grouped by provider (gmail, outlook, ...): list those that wait, resume, limit, "
        "add domains. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    one_object = "a receiver that waits"
    shown = ("vendor", "credential", "receiver", "until", "cause", "answers", "answer")
    row_facts = staticmethod(deferrals.wait_facts)

    @declare_verb(
        "those that wait or have accepted nothing since, of all vendors or of one",
        declare_argument("vendor", nargs="?"),
    )
    def do_list(self, vendor: str | None, **options: Any) -> None:
        rows = Credential.objects.all()
        logins = rows.filter(vendor=arguments.find_vendor(vendor)) if vendor else rows
        self.write_rows(deferrals.receiver_waits(logins.values_list("pk", flat=True)))

    @declare_verb(
        "call it again as if it had not asked to wait",
        declare_argument("vendor"),
        declare_argument("receiver", help="as `receiver list` names it"),
        declare_argument("--credential", metavar="NAME", help="only there"),
    )
    def do_resume(self, vendor: str, receiver: str, credential: str | None, **options: Any) -> None:
        of = arguments.find_vendor(vendor)
        logins = [arguments.find_credential(of, credential)] if credential else list(of.credentials.all())
        by = history.Actor(arguments.shell_user())
        ended = [login.name for login in logins if deferrals.end_wait(login, receiver, by)]
        said = (
            f"called again, also by campaigns that wait, within a minute: {', '.join(ended)}"
            if ended
            else "did not wait"
        )
        self.write_result(f"{vendor}: {receiver} {said}", {"vendor": vendor, "receiver": receiver, "resumed": ended})

    @declare_verb(
        "replace its own limits, in force immediately beside those of the vendor; none: show them",
        declare_argument("vendor"),
        declare_argument("receiver", help=f"a group of the table, or '{OTHERS}' for all other domains together"),
        declare_argument("limits", nargs="*", metavar="N/SECONDS"),
        declare_argument("--at-a-time", type=int, metavar="N", help="calls at the same time"),
        declare_argument(
            "--warm-up", type=int, metavar="N", help="so many today, half as many again on each day that follows"
        ),
        declare_argument("--growth", type=float, default=1.5, metavar="FACTOR", help="of a warm-up, from 1 to 10"),
        declare_argument("--credential", metavar="NAME", help="only there"),
        declare_argument("--clear", action="store_true", help="no limit any more"),
    )
    def do_limit(self, vendor: str, receiver: str, **options: Any) -> None:
        of = arguments.find_vendor(vendor)
        login = arguments.find_credential(of, options["credential"]) if options["credential"] else None
        rows = _wanted_limits(of, options)
        if rows and options["clear"]:
            raise CommandError("give new limits or --clear, not both")
        changed = None
        if rows or options["clear"]:
            try:
                changed = receiver_limits.change_receiver_limits(
                    of, login, receiver, rows, history.Actor(arguments.shell_user())
                )
            except ValidationError as error:
                raise refused_error(error) from None
        now = receiver_limits.read_receiver_limits(of, login, receiver)
        done = "" if changed is None else "changed: " if changed else "already so: "
        self.write_result(
            f"{login or of} {receiver}: {done}{receiver_limits.describe_limits(now)}",
            {
                "vendor": vendor,
                "credential": login.name if login else None,
                "receiver": receiver,
                "limits": [receiver_limits.limit_facts(row) for row in now],
                "changed": bool(changed),
            },
        )

    @declare_verb("all limits of receivers, of all vendors or of one", declare_argument("vendor", nargs="?"))
    def do_limits(self, vendor: str | None, **options: Any) -> None:
        rows = ReceiverLimit.objects.select_related("vendor", "credential").order_by("vendor__slug", "receiver", "pk")
        found = rows.filter(vendor=arguments.find_vendor(vendor)) if vendor else rows
        facts = (
            {
                "vendor": row.vendor.slug,
                "credential": row.credential.name if row.credential else None,
                "receiver": row.receiver,
                **(receiver_limits.limit_facts(row) if self.as_json else {"limit": row.terms}),
            }
            for row in found
        )
        self.write_facts(facts, ("vendor", "credential", "receiver", "limit"))

    @declare_verb(
        "put a domain into a group, whatever the table says",
        declare_argument("domain"),
        declare_argument("group", help=f"of the table, or a new name; '{OTHERS}' for none"),
    )
    def do_add(self, domain: str, group: str, **options: Any) -> None:
        try:
            changed = receiver_domains.put_domain(domain, group, history.Actor(arguments.shell_user()))
        except ValidationError as error:
            raise refused_error(error) from None
        self._warn_of_idle_limits()
        plain = receiver_domains.checked_domain(domain)
        self.write_result(
            f"{plain}: {'now' if changed else 'already'} {group}",
            {**receiver_domains.domain_facts(plain, group, "own"), "changed": changed},
        )

    @declare_verb("take a domain of one's own away: the table decides again", declare_argument("domain"))
    def do_remove(self, domain: str, **options: Any) -> None:
        removed = receiver_domains.remove_domain(domain, history.Actor(arguments.shell_user()))
        self._warn_of_idle_limits()
        now = table_group(plain_domain(domain))
        self.write_result(
            f"{domain}: {'removed' if removed else 'no row of its own'}; its group is {now}",
            {**receiver_domains.domain_facts(domain, now, "table"), "changed": removed},
        )

    def _warn_of_idle_limits(self) -> None:
        for one in receiver_domains.describe_idle_limits():
            self.stderr.write(str(one))

    @declare_verb(
        "the domains of all groups or of one, and whether the table or a row of one's own says so",
        declare_argument("group", nargs="?"),
        declare_argument("--own", action="store_true", help="rows of one's own alone"),
    )
    def do_domains(self, group: str | None, own: bool, **options: Any) -> None:
        receiver_domains.refresh_domains(at_once=True)
        mine = own_domains()
        rows = (
            receiver_domains.domain_facts(domain, of, "own" if domain in mine else "table")
            for domain, of in sorted(groups_of_domains().items(), key=lambda row: (row[1], row[0]))
            if (group is None or of == group) and (domain in mine or not own)
        )
        self.write_facts(rows, ("domain", "receiver", "source"))


def _wanted_limits(of: Vendor, options: dict[str, Any]) -> list[ReceiverLimit]:
    """Return unsaved rows of the limits that the options name."""
    rows = [
        ReceiverLimit(units=units, seconds=seconds) for units, seconds in arguments.parse_windows(options["limits"])
    ]
    if options["at_a_time"] is not None:
        rows.append(ReceiverLimit(units=options["at_a_time"], seconds=AT_A_TIME))
    if options["warm_up"] is not None:
        begins = {"grows_from": receiver_limits.vendor_today(of), "growth": options["growth"]}
        rows.append(ReceiverLimit(units=options["warm_up"], seconds=DAY, **begins))
    return rows


def refused_error(error: ValidationError) -> CommandError:
    """Return a refusal in words, whether it concerns a field or the whole."""
    return arguments.refused_error(error) if hasattr(error, "error_dict") else CommandError(" ".join(error.messages))
