"""`manage.py suppression`: manages suppressed addresses."""

import shutil
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError

from campaigns.doors.sponsors import named_sponsor, region_of
from campaigns.lists import intake
from campaigns.lists.hidden_rows import HIDDEN_ROWS, hidden_rows, hidden_rows_hint
from campaigns.lists.intake.suppression_file import SuppressionFile, read_time, topic_of, write_suppressions
from campaigns.models import Job, Message, Sponsor, Suppression, Topic
from campaigns.suppression import lists, suppressing
from campaigns.suppression.lists import NewSuppression
from vendors.history import Actor
from vendors.management.arguments import shell_user
from vendors.management.output import write_result, write_rows
from vendors.models import Vendor
from vendors.said import count_of

SHOWN = ("id", "sponsor", "topic", "address", "reason", "source", "since", "until", "holds")
RECIPIENTS = ("message", "recipient", "reason")
LIMIT = 1_000_000  # addresses in a file to lift or erase


class Command(BaseCommand):
    help = (
        "Add, import, export, check, lift, erase, recipients. A suppressed recipient gets nothing more of the sponsor, "
        "or of any. Lifting sends nothing: retry_job does. Erasing deletes the address, and it stays suppressed by a "
        "keyed hash. Exit codes: 0 done (or it was so already), 1 unknown name or bad input, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        reasons = Suppression.Reason.values
        for verb, about in (
            ("add", "suppress addresses"),
            (
                "import",
                "suppress the addresses of a CSV file or spreadsheet; further columns: reason, source, since, until,"
                " topic",
            ),
            ("export", "those that hold, as CSV on standard output"),
            ("check", "the suppressions of addresses, also those for all sponsors and those that have ended"),
            ("lift", "end them; messages kept back are sent only by a retry of their job"),
            ("erase", "delete the addresses; they stay suppressed"),
        ):
            one = verbs.add_parser(verb, help=about)
            whose = one.add_mutually_exclusive_group(required=True)
            whose.add_argument("--sponsor", metavar="NAME", help="of this sponsor")
            whose.add_argument("--all-sponsors", action="store_true", help="those that hold for all sponsors")
            one.add_argument("--channel", choices=Vendor.Channel.values, default="email", help="default: email")
            if verb != "export":
                one.add_argument("--region", metavar="GB", help="of phone numbers without +; default: the sponsor's")
            if verb in ("add", "check", "lift", "erase"):
                one.add_argument("address", nargs="*", metavar="ADDRESS")
            if verb == "import":
                one.add_argument("file", metavar="FILE", help="- for standard input")
            if verb in ("lift", "erase"):
                one.add_argument("--file", metavar="FILE", help="CSV or spreadsheet; its first column is the address")
                one.add_argument("--hidden-rows", choices=HIDDEN_ROWS, help="of a spreadsheet that hides some")
                one.add_argument("--source", metavar="TEXT", help="all of this source, as 'campaign 12'")
                one.add_argument("--reason", default="", metavar="TEXT", help="for the record")
            if verb in ("add", "import"):
                one.add_argument("--reason", choices=reasons, default="by_hand", help="default: by_hand")
                one.add_argument("--source", default="", metavar="TEXT", help="where it comes from")
                one.add_argument(
                    "--topic", metavar="NAME", help="of the sponsor, with --reason unsubscribed: that alone"
                )
                one.add_argument("--until", metavar="WHEN", help="ISO 8601 with zone; default: for good")
        recipients = verbs.add_parser(
            "recipients", help="recipients that a job has not called because of a suppression"
        )
        recipients.add_argument("job", type=int)
        for name, one in verbs.choices.items():
            if name != "export":
                one.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"do_{options['verb']}")(**options)
        except (intake.BadInput, ValueError) as error:
            raise CommandError(f"nothing was changed\n{error}{hidden_rows_hint(error)}") from error

    def do_add(self, **options: Any) -> None:
        new = _default_suppression(options, _topics_by_name(options))
        normal = _reader_of_options(options)
        rows = [replace(new, address=normal(one)) for one in _given_addresses(options)]
        self._write_added(
            len(rows),
            suppressing.add_and_record(_sponsor_id_of(options), options["channel"], rows, Actor(shell_user())),
            options,
        )

    def do_import(self, **options: Any) -> None:
        with _copy_input(options["file"]) as file:
            topics = _topics_by_name(options)
            rows = SuppressionFile(
                file,
                options["channel"],
                _default_suppression(options, topics),
                topics,
                region=_region_of_options(options),
            )
            if rows.hidden:
                where = count_of(rows.hidden, "of them is in a row", "of them are in rows")
                self.stderr.write(f"{where} that the spreadsheet hides")
            self._write_added(
                len(rows),
                suppressing.add_and_record(_sponsor_id_of(options), options["channel"], rows, Actor(shell_user())),
                options,
            )

    def do_export(self, **options: Any) -> None:
        write_suppressions(
            suppressing.held_suppressions().filter(sponsor=_sponsor_id_of(options), channel=options["channel"]),
            self.stdout,
        )

    def do_check(self, **options: Any) -> None:
        normal, whose = _reader_of_options(options), _sponsor_id_of(options)
        addresses = [normal(one) for one in _given_addresses(options)]
        ids = [id for one in {whose, None} for id in lists.ids_of_addresses(options["channel"], addresses, one)]
        holds = set(suppressing.held_suppressions().filter(pk__in=ids).values_list("pk", flat=True))
        rows = Suppression.objects.filter(pk__in=ids).select_related("sponsor", "topic").order_by("pk")
        write_rows(self.stdout, [_facts_of_row(row, row.pk in holds) for row in rows], options["json"], SHOWN)

    def do_lift(self, **options: Any) -> None:
        number = suppressing.lift_and_record(self._ids_to_change(options), Actor(shell_user()), options["reason"])
        write_result(
            self.stdout, f"{number:,} lifted; retry_job sends what they kept back", {"lifted": number}, options["json"]
        )

    def do_erase(self, **options: Any) -> None:
        number = suppressing.erase_and_record(self._ids_to_change(options), Actor(shell_user()), options["reason"])
        text = count_of(number, "address is erased and stays", "addresses are erased and stay")
        write_result(self.stdout, f"{text} suppressed", {"erased": number}, options["json"])

    def do_recipients(self, **options: Any) -> None:
        job = Job.objects.filter(pk=options["job"]).first()
        if job is None:
            raise CommandError(f"there is no job {options['job']}")
        write_rows(self.stdout, _kept_back(job), options["json"], RECIPIENTS)

    def _write_added(self, given: int, added: int, options: dict[str, Any]) -> None:
        sentence = (
            f"{added:,} suppressed; {count_of(given - added, 'was', 'were')} so already, given twice, or at an end"
        )
        write_result(self.stdout, sentence, {"given": given, "added": added}, options["json"])

    def _ids_to_change(self, options: dict[str, Any]) -> list[int]:
        if options["source"]:
            return list(suppressing.ids_from_source(_sponsor_id_of(options), options["channel"], options["source"]))
        if not options["file"]:
            normal = _reader_of_options(options)
            return lists.ids_of_addresses(
                options["channel"], [normal(one) for one in _given_addresses(options)], _sponsor_id_of(options)
            )
        with _copy_input(options["file"]) as file:
            default = NewSuppression("", "by_hand")
            rows = SuppressionFile(
                file,
                options["channel"],
                default,
                {},
                LIMIT,
                with_topics=False,
                region=_region_of_options(options),
                hidden_rows=hidden_rows(options),
            )
            return suppressing.ids_of_file(_sponsor_id_of(options), options["channel"], rows)


def _kept_back(job: Job) -> Iterator[dict[str, Any]]:
    rows = Message.objects.filter(id__gte=job.first_message, id__lt=job.end, error_code="suppressed").order_by("id")
    for row in rows.iterator():
        yield {"message": row.pk, "recipient": row.recipient, "reason": row.error_sub_type}


def _given_addresses(options: dict[str, Any]) -> list[str]:
    if not options["address"]:
        raise CommandError("name at least one ADDRESS", returncode=2)
    return list(options["address"])


def _topics_by_name(options: dict[str, Any]) -> dict[str, int]:
    return dict(Topic.objects.filter(sponsor=_sponsor_id_of(options)).values_list("name", "pk"))


def _default_suppression(options: dict[str, Any], topics: dict[str, int]) -> NewSuppression:
    until = read_time(options["until"], "--until") if options["until"] else None
    topic = topic_of(topics, options["topic"], options["reason"]) if options["topic"] else None
    return NewSuppression("", options["reason"], options["source"], None, until, topic)


def _sponsor_id_of(options: dict[str, Any]) -> int | None:
    found = _sponsor_of_options(options)
    return found.pk if found else None


def _sponsor_of_options(options: dict[str, Any]) -> Sponsor | None:
    return None if options["all_sponsors"] else named_sponsor(options["sponsor"])


def _region_of_options(options: dict[str, Any]) -> str:
    return region_of(_sponsor_of_options(options), options["channel"], options["region"])


def _reader_of_options(options: dict[str, Any]) -> intake.AddressReader:
    return intake.AddressReader(options["channel"], _region_of_options(options))


def _copy_input(name: str) -> BinaryIO:
    """Return a copy that can be read twice, unlike a pipe, and cannot change meanwhile."""
    copy: Any = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    try:
        if name == "-":
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with Path(name).open("rb") as file:
                shutil.copyfileobj(file, copy)
    except BaseException as error:
        copy.close()
        if isinstance(error, OSError):
            raise CommandError(f"cannot read {name}: {error.strerror}") from error
        raise
    file_copy: BinaryIO = copy
    return file_copy


def _facts_of_row(row: Suppression, holds: bool) -> dict[str, Any]:
    return {
        "id": row.pk,
        "sponsor": row.sponsor.name if row.sponsor else "all",
        "topic": row.topic.name if row.topic else None,
        "channel": row.channel,
        "address": row.address or "erased",
        "reason": row.reason,
        "source": row.source,
        "since": row.since,
        "until": row.until,
        "holds": holds,
    }
