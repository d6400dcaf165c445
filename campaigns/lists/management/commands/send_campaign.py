"""`manage.py send_campaign`: stores a CSV file of recipients as a campaign with its job."""

import json
import shutil
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, DjangoHelpFormatter
from django.utils import timezone

from campaigns.approvals import approval_rules
from campaigns.doors.sponsors import region_of
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.ports import NotEntitled
from campaigns.engine.routes import entries
from campaigns.engine.sending_hours import campaign_opens_at, describe_opening
from campaigns.lists import estimates, intake, previewing
from campaigns.lists.content_options import add_content_options, campaign_sponsor, read_content
from campaigns.lists.hidden_rows import HIDDEN_ROWS, hidden_rows, hidden_rows_hint
from campaigns.lists.intake import At, Hours, to_oneself
from campaigns.lists.intake.contents import CampaignContent
from campaigns.lists.intake.hours import parse_hours
from campaigns.lists.intake.storage import PauseRules, check_times, parse_at, parse_moment
from campaigns.lists.intake.text_encoding import WESTERN
from campaigns.models import Campaign, Job
from campaigns.models.states import Status
from campaigns.operations import following
from campaigns.senders import entitlements
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import NewWork
from campaigns.texts import templates
from vendors.history import Actor
from vendors.mail_classes import CLASSES, MailClass, class_named, warn_of_floor
from vendors.management import arguments
from vendors.models import Credential, Vendor
from vendors.said import count_of

SAID = {
    "date": "dates",
    "time": "times",
    "money": "amounts of money",
    "percent": "percentages",
    "number": "numbers with a format",
}
LONG = 1_000_000  # bytes of a list for which a bar is shown
HELP = """\
Checks every row of FILE, then stores campaign, messages and job together, or nothing at all.

FILE is a spreadsheet (XLSX, ODS or XLS; its first sheet) or CSV, with a header; - reads it from standard input. CSV may
be UTF-8, UTF-16 or what Windows writes in Western Europe (CP1252), delimited by commas, semicolons, tabs, bars, or a
first line like sep=;. The first column is the recipient (e-mail address, phone number with country code, or print
address); the others are fields of the templates: {{ city }} shows the column city, {{ First_name }} the column First
name, {{ recipient }} the recipient. A field that is shown as it is must not be empty;
{{ name|default("friend", true) }} and {% if name %}...{% endif %} allow it.

Beside an HTML body goes a text: the one of --text, which may show fields, too, or one made from the HTML. A column
named by --file-column has the name of a file within the folder or ZIP archive of --files, for this recipient alone; an
empty cell means none. The files of a letter may have 20 MB together.

exit codes:
  0  accepted; with --wait: and every message was accepted by the vendor, but for suppressed recipients
  1  bad input, nothing was stored (each problem with its row, as a spreadsheet counts rows)
  2  usage
  4  with --wait: finished, but some messages were refused or expired, or the job was stopped or paused
  5  with --wait: finished, but some messages need attention: the vendor may have them
  130  with --wait: Ctrl-C; sending continues
"""


class Paragraphs(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the line breaks of the help text."""


class Command(BaseCommand):
    help = HELP
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        return super().create_parser(prog_name, subcommand, formatter_class=Paragraphs, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("file", metavar="FILE", help="recipients, as XLSX, ODS, XLS or CSV; - for standard input")
        add("--hidden-rows", choices=HIDDEN_ROWS, help="of a spreadsheet; default: they are named, and nothing is sent")
        add("--encoding", metavar="NAME", help="of a CSV file, like cp1250; default: found by the file's contents")
        add("--skip-bad-rows", metavar="NEW_FILE", help="leave bad rows out, and write them to this CSV file with why")
        add("--sponsor", required=True, metavar="NAME", help="on whose behalf it goes out")
        add("--identity", default="", metavar="NAME", help="the sender identity; default: the sponsor's default one")
        add("--topic", default="", metavar="NAME", help="its subject, from which alone recipients can unsubscribe")
        add(
            "--transactional",
            action="store_true",
            help="nobody can unsubscribe from it; the sponsor must be allowed to",
        )
        about = "before or after other mail; default: the template's, else bulk, and usual if nobody can unsubscribe"
        add("--class", dest="mail_class", choices=CLASSES, help=about)
        add("--region", metavar="GB", help="of phone numbers without country code; default: the sponsor's, or none")
        add("--new-sponsor", action="store_true", help="the sponsor is new, although another one has a similar name")
        by = parser.add_mutually_exclusive_group(required=True)
        by.add_argument("--vendor", metavar="SLUG", help="who delivers it")
        by.add_argument(
            "--route", metavar="NAME", help="the vendors of this route: the next one where one takes no work"
        )
        add("--credential", metavar="NAME", help="login at the vendor; default: its only one, or 'default'")
        add_content_options(parser)
        add("--name", metavar="TEXT", help="of the campaign; default: the file's name")
        add("--at", default="nightly", metavar="WHEN", help="nightly (default), now, or a time: ISO 8601 with zone")
        add("--hours", metavar="HH:MM-HH:MM", help="calls start only within these hours, local time")
        add("--time-zone", metavar="ZONE", help="of --hours, like Europe/London; default: the vendor's")
        add(
            "--hours-of-each",
            action="store_true",
            help="--hours by each recipient's clock: where the number is, or the column time_zone says; if empty: ZONE",
        )
        add("--deadline", metavar="WHEN", help="messages not called by then expire: ISO 8601 with zone")
        add("--first", type=int, metavar="N", help="send to the first N, then wait until resume_job lets the rest go")
        for rule, what in (("bounce", "fail or bounce"), ("complaint", "complain")):
            about = f"pause when more recipients {what}; default: the installation's limit, 0: never"
            add(f"--{rule}-limit", type=float, metavar="PERCENT", help=about)
        add("--test-to", metavar="ADDRESS", help="send only the first row's letter, now, to this address of your own")
        add("--wait", action="store_true", help="wait until the job is finished or stopped")
        add(
            "--json",
            action="store_true",
            help="one object: job, campaign, recipients, left_out, suppressed, status, class",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["time_zone"] and not options["hours"]:
            raise CommandError("--time-zone goes with --hours", returncode=2)
        if options["hours_of_each"] and not options["hours"]:
            raise CommandError("--hours-of-each goes with --hours", returncode=2)
        if options["preview"] or options["preview_pdf"] or options["window"]:
            options["preview"] = previewing.letters_to_show(options)
        left_out = intake.LeftOut() if options["skip_bad_rows"] else None
        try:
            with tempfile.TemporaryFile() as spool:
                size = _spool_input(options["file"], spool)
                with following.show_bars() if size > LONG else nullcontext(_no_bar) as add:
                    job = _check_and_store(spool, options, add, left_out)
        except (intake.BadInput, templates.TemplateError, NotEntitled) as error:
            raise CommandError(f"nothing was stored\n{error}{hidden_rows_hint(error)}") from error
        if isinstance(job, tuple):
            previewing.write_preview(*job, options, self.stdout)
            return
        if job.status == Status.READY:
            dispatcher.dispatch_ready([job.pk])
            dispatcher.notify_vendors([job.vendor_id])
            job.refresh_from_db()
        self._tell_result(job, options, len(left_out or ()))

    def _tell_result(self, job: Job, options: dict[str, Any], left_out: int) -> None:
        approval = job.paused_at is not None  # only an approval pauses a campaign just stored
        if not options["json"]:
            if note := _links_note(job.campaign):
                sys.stderr.write(f"{note}\n")
            if left_out:
                rows = count_of(left_out, "row is", "rows are")
                self.stdout.write(f"{rows} left out: {options['skip_bad_rows']} says which, and why")
            self.stdout.write(_job_sentence(job))
            if job.status in (Status.RENDERED, Status.READY):
                self.stdout.write(estimates.describe_stored_campaign(job.campaign))
        sums = following.follow_jobs([job.pk]) if options["wait"] else None
        job.refresh_from_db()
        if options["json"]:
            counts = {"recipients": job.size, "left_out": left_out, "suppressed": job.suppressed}
            facts = {"job": job.pk, "campaign": job.campaign_id, **counts, "status": job.status}
            facts["class"] = MailClass(job.mail_class).word
            facts["approval"] = "waiting" if approval else None
            self.stdout.write(json.dumps(facts))
        elif sums:
            paused = following.jobs_pause_reason([job.pk])
            self.stdout.write(f"{job.status}: {following.format_end(sums)}{f'; {paused}' if paused else ''}")
        if sums and (code := following.exit_code(sums)):
            raise SystemExit(code)


def _check_and_store(
    file: BinaryIO, options: dict[str, Any], add: following.AddBar, left_out: intake.LeftOut | None
) -> Job | previewing.Looked:
    """Check and store the campaign, or only preview it.

    Raises CommandError, BadInput, TemplateError; then nothing is stored.
    """
    sponsor = campaign_sponsor(options["sponsor"], new=options["new_sponsor"])
    if options["route"] and options["credential"]:
        raise CommandError("--credential goes with --vendor", returncode=2)
    route = entries.named_route(sponsor, options["route"]) if options["route"] else None
    logins = (
        entries.usable_credentials(route, sponsor)
        if route
        else [_credential_of_vendor(options["vendor"], options["credential"])]
    )
    credential, vendor = logins[0], logins[0].vendor
    entitlements.require_entitlement(sponsor, credential)
    if sponsor.pk:  # a new sponsor's identity is created with it
        entitlements.choose_identity_for(sponsor, vendor, options["identity"])
    topic = entitlements.choose_topic(sponsor, options["topic"], options["transactional"])
    content = read_content(options, sponsor, logins, entries.vendors_of_route(route) if route else ())
    at, hours, deadline = _parse_times(options, vendor)
    pauses = PauseRules(options["first"], options["bounce_limit"], options["complaint_limit"])
    name = options["name"] or ("standard input" if options["file"] == "-" else Path(options["file"]).stem)
    typed = options["region"]
    region = sponsor.phone_region if typed is None else region_of(sponsor, vendor.channel, typed)
    if hours:
        content = replace(content, compiled=hours.check_recipient_zones(vendor.channel, content.compiled))
    recipients: intake.Recipients = _check_recipient_list(file, vendor, content, options, add, left_out, region)
    named: int | None = class_named(options["mail_class"])
    if named is None and content.version:
        named = content.version.template.mail_class
    size = 1 if options["test_to"] else len(recipients)
    mail_class = entitlements.class_for(sponsor, credential, named, size, transactional=options["transactional"])
    if options["preview"] or options["check"]:
        campaign = content.campaign(topic, options["transactional"], sponsor_id=sponsor.pk, mail_class=mail_class)
        starts_at = at if isinstance(at, datetime) else timezone.now()
        work = NewWork(sponsor.pk or 0, vendor.pk, credential.pk, len(recipients), starts_at)
        notes = {
            "quotas": [str(one.sentence) for one in admission.foresee_answers([work])],
            "floor": str(warn_of_floor(mail_class, vendor.name, vendor.floor)),
        }
        return previewing.preview_campaign(content, logins, campaign, recipients, options, notes)
    files = content.files
    if options["test_to"]:
        normal = intake.AddressReader(vendor.channel, region, is_for_sending=True)
        recipients = to_oneself.address_first_letter(options["test_to"], recipients, normal, content.compiled)
        files = files and files.of(recipients)
        name, at, hours = f"{to_oneself.NAME}{name}", "now", None
    return intake.store_campaign(
        sponsor=sponsor,
        credential=credential,
        name=name,
        subject=content.subject,
        body=content.body,
        html=content.html,
        text=content.text,
        headers=content.headers,
        files=files,
        recipients=recipients,
        at=at,
        hours=hours,
        deadline=deadline,
        identity=options["identity"],
        topic=options["topic"],
        transactional=options["transactional"],
        mail_class=named,
        pauses=pauses,
        route=None if options["test_to"] else route,
        by=Actor(arguments.shell_user()),
        to_oneself=bool(options["test_to"]),
        template_version=content.version,
        progress=add("Storing", len(recipients)),
    )


def _check_recipient_list(
    file: BinaryIO,
    vendor: Vendor,
    content: CampaignContent,
    options: dict[str, Any],
    add: following.AddBar,
    left_out: intake.LeftOut | None,
    region: str,
) -> intake.CheckedTable:
    """Check the list, and write the rows left out of it to a file."""
    target = Path(options["skip_bad_rows"]) if left_out is not None else None
    if target and target.exists():
        raise CommandError(f"{target} is there already: name a new file for the rows that are left out")
    table = intake.Table(file, options["encoding"], hidden_rows=hidden_rows(options))
    _tell_about(table, options)
    if table.encoding == WESTERN and not options["encoding"]:
        sys.stderr.write(f"{options['file']} is read as CP1252; if names look wrong, say --encoding\n")
    content.check_columns(table)
    checked = add("Checking", table.size)
    try:
        return intake.check_table(
            table, vendor.channel, content.compiled, lambda: checked(table.file.tell()), left_out, region
        )
    finally:
        if target and left_out:
            _write_left_out(table, left_out, target)


def _tell_about(table: intake.Table, options: dict[str, Any]) -> None:
    """Say what a spreadsheet hides, and what is not given as it is shown there. Raises BadInput."""
    table.require_choice()
    if table.hidden_rows:
        done = "left out" if options["hidden_rows"] == HIDDEN_ROWS[1] else "sent, too"
        rows = count_of(
            len(table.hidden_rows), "hidden row of the spreadsheet is", "hidden rows of the spreadsheet are"
        )
        sys.stderr.write(f"{rows} {done}\n")
    for kind, examples in table.examples.items():
        value = next(iter(examples.values()))
        columns = ", ".join(examples)
        if kind == "merged":
            sys.stderr.write(f"merged cells ({columns}): only the first of the rows {value} has their value\n")
            continue
        sys.stderr.write(f"{SAID[kind]} ({columns}): not as the spreadsheet shows them, but like {value}\n")


def _write_left_out(table: intake.Table, left_out: intake.LeftOut, target: Path) -> None:
    try:
        # spreadsheets recognise UTF-8 by its byte order mark
        with target.open("x", encoding="utf-8-sig", newline="") as file:
            intake.write_left_out(table, left_out, file)
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror}") from error


def _no_bar(label: str, total: int) -> following.Bar:
    return lambda done, said="": None


def _spool_input(name: str, spool: BinaryIO) -> int:
    """Make a copy that can be read twice, unlike a pipe, and cannot change meanwhile; return its size."""
    try:
        if name == "-":
            shutil.copyfileobj(sys.stdin.buffer, spool)
        else:
            with Path(name).open("rb") as file:
                shutil.copyfileobj(file, spool)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error
    return spool.tell()


def _parse_times(options: dict[str, Any], vendor: Vendor) -> tuple[At, Hours | None, datetime | None]:
    at = parse_at(options["at"])
    zone, each = options["time_zone"] or vendor.time_zone, options["hours_of_each"]
    hours = parse_hours(options["hours"], zone, each) if options["hours"] else None
    deadline = parse_moment(options["deadline"], "--deadline") if options["deadline"] else None
    check_times(at, deadline, timezone.now())  # before reading a million rows
    return at, hours, deadline


def _credential_of_vendor(slug: str, name: str | None) -> Credential:
    """Return the vendor's credential of that name; without a name its only one, or the one called default."""
    vendor = arguments.find_vendor(slug)
    if name:
        return arguments.find_credential(vendor, name)
    logins = {credential.name: credential for credential in vendor.credentials.all()}
    found = next(iter(logins.values())) if len(logins) == 1 else logins.get("default")
    if found is None:
        known = ", ".join(logins) or "it has none yet"
        raise CommandError(f"{slug} has more than one credential, or none; name one with --credential: {known}")
    return found


def _links_note(campaign: Campaign) -> str:
    bulk = campaign.is_bulk and campaign.credential.vendor.channel == "email"
    if not bulk or settings.PUBLIC_URL:
        return ""
    return "Its mails have no link with which to unsubscribe, as large providers ask: PUBLIC_URL is not set"


def _job_sentence(job: Job) -> str:
    waits = {Status.RENDERED: "waits for the nightly dispatch", Status.READY: f"waits until {job.not_before}"}
    opening = campaign_opens_at(job.campaign, timezone.now())
    stopped = following.jobs_pause_reason([job.pk])
    going = f"waits ({describe_opening(job.campaign, opening)})" if opening else "is on its way"
    going = f"waits: {stopped}" if stopped and not opening else going
    state = waits.get(Status(job.status), going)
    recipients = count_of(job.size, "recipient")
    if job.paused_at:
        state = approval_rules.bar_reason(job.campaign_id)
    if job.wait_after:
        state += f", and waits after its first {job.wait_after:,} for resume_job {job.pk}"
    if job.suppressed:
        recipients += f", {job.suppressed:,} of them suppressed: suppression recipients {job.pk} lists them"
    return f"Job {job.pk} of campaign {job.campaign_id} ({recipients}) {state}: {job.status}"
