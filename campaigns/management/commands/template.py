"""`manage.py template`: manages sponsors' templates and their versions."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns.content.templates import TemplateError
from campaigns.management.content_options import typed_content
from campaigns.management.sponsors import KNOWN, named_sponsor
from campaigns.models import Sponsor, Template, TemplateVersion
from campaigns.template_versions import comparing, versions
from vendors.history import Actor
from vendors.management.arguments import person
from vendors.management.output import tell, write_rows
from vendors.models import Vendor

SHOWN = ("sponsor", "name", "channel", "version", "made_by", "made_at", "archived")
VERSIONS = ("version", "made_by", "made_at", "remark", "campaigns")


class Command(BaseCommand):
    help = (
        "Templates of sponsors: list, show, versions, add, diff, archive, restore. A version never changes: add stores "
        "the next one, compiled and checked; send_campaign --template NAME@VERSION names one. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verbs.add_parser("list", help="all, or those of a sponsor")
        listing.add_argument("sponsor", nargs="?")
        listing.add_argument("--archived", action="store_true", help="the archived ones instead")
        for verb, about in (
            ("show", "a version's text, by default the newest"),
            ("versions", "all versions, and how many campaigns each has"),
            ("add", "the next version; the first one makes the template"),
            ("diff", "what two versions differ in"),
            ("archive", "no new campaign can name it"),
            ("restore", "it can be named again"),
        ):
            one = verbs.add_parser(verb, help=about)
            one.add_argument("sponsor")
            one.add_argument("name", metavar="NAME[@VERSION]" if verb == "show" else "NAME")
        _add_content(verbs.choices["add"])
        verbs.choices["diff"].add_argument("old", type=int)
        verbs.choices["diff"].add_argument("new", type=int)
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_list(self, sponsor: str | None, **options: Any) -> None:
        rows = Template.objects.select_related("sponsor").filter(archived_at__isnull=not options["archived"])
        found = list(rows.filter(sponsor=named_sponsor(sponsor)) if sponsor else rows)
        newest = versions.newest_of(found)
        write_rows(self.stdout, [_facts(row, newest[row.pk]) for row in found], options["json"], SHOWN)

    def do_show(self, sponsor: str, name: str, **options: Any) -> None:
        plain, at, number = name.rpartition("@") if "@" in name else (name, "", "")
        template = _named(named_sponsor(sponsor), plain)
        version = _version(template, number) if at else template.versions.get(number=_newest(template))
        says = versions.content_of(version)
        facts = {
            **_facts(template, version),
            "subject": says.subject,
            "body": says.body,
            "html": says.html,
            "text": says.text,
            "headers": dict(says.headers),
            "remark": version.remark,
        }
        tell(self.stdout, _shown(version), facts, options["json"])

    def do_versions(self, sponsor: str, name: str, **options: Any) -> None:
        template = _named(named_sponsor(sponsor), name)
        rows = list(template.versions.defer("subject", "body", "text", "headers"))
        used = versions.uses(rows)
        lines = [
            {
                "version": row.number,
                "made_by": row.made_by,
                "made_at": row.made_at,
                "remark": row.remark,
                "campaigns": used[row.pk].campaigns if row.pk in used else 0,
            }
            for row in rows
        ]
        write_rows(self.stdout, lines, options["json"], VERSIONS)

    def do_add(self, sponsor: str, name: str, **options: Any) -> None:
        of = named_sponsor(sponsor)
        known = Template.objects.filter(sponsor=of, name=name).first()
        channel = options["channel"] or (known.channel if known else "")
        if not channel:
            raise CommandError("a new template needs a --channel", returncode=2)
        by = Actor(person())
        try:
            content = typed_content(options, channel)
            added = versions.add(of.pk, name, channel, content, by, options["remark"], options["based_on"])
        except (TemplateError, versions.TemplateRefused, versions.NewerVersion) as error:
            raise CommandError(f"nothing was stored: {error}") from None
        what = "added" if added.new else "says that already; nothing was added"
        facts = {**_facts(added.version.template, added.version), "added": added.new}
        tell(self.stdout, f"{of.name}/{added.version}: {what}", facts, options["json"])

    def do_diff(self, sponsor: str, name: str, old: int, new: int, **options: Any) -> None:
        template = _named(named_sponsor(sponsor), name)
        before, after = (versions.content_of(_version(template, str(number))) for number in (old, new))
        parts = comparing.differences(before, after)
        text = comparing.as_text(parts)
        facts = {"name": name, "old": old, "new": new, "differences": text}
        tell(self.stdout, text or f"{name}@{old} and {name}@{new} say the same", facts, options["json"])

    def do_archive(self, sponsor: str, name: str, **options: Any) -> None:
        template = _named(named_sponsor(sponsor), name)
        changed = versions.archive(template, Actor(person()))
        self._ended(template, "archived" if changed else "was archived already", options)

    def do_restore(self, sponsor: str, name: str, **options: Any) -> None:
        template = _named(named_sponsor(sponsor), name)
        changed = versions.restore(template, Actor(person()))
        self._ended(template, "restored" if changed else "was not archived", options)

    def _ended(self, template: Template, what: str, options: dict[str, Any]) -> None:
        facts = {"sponsor": template.sponsor.name, "name": template.name, "archived": bool(template.archived_at)}
        tell(self.stdout, f"{template.sponsor.name}/{template.name}: {what}", facts, options["json"])


def _add_content(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--channel", choices=Vendor.Channel.values, help="of a new template")
    add("--subject", default="", metavar="TEXT", help="e-mail must have one")
    add("--body", required=True, metavar="TEMPLATE_FILE", help="UTF-8")
    add("--html", action="store_true", help="the body is HTML: fields are escaped in it")
    add("--mjml", action="store_true", help="the body is MJML; its HTML is stored")
    add("--text", metavar="TEMPLATE_FILE", help="beside an HTML body; default: made from the HTML by each campaign")
    add("--header", action="append", metavar="NAME:VALUE", help="a further header of e-mail; may be repeated")
    add("--remark", default="", metavar="TEXT", help="the news in it, for people")
    about = "the version that this started from, 0: none; if there is a newer one, nothing is stored"
    add("--based-on", type=int, metavar="VERSION", help=about)


def _named(of: Sponsor, name: str) -> Template:
    found = Template.objects.select_related("sponsor").filter(sponsor=of, name=name).first()
    if found is None:
        known = ", ".join(of.templates.values_list("name", flat=True)[:KNOWN]) or "none yet"
        raise CommandError(f"{of.name} has no template {name!r}; it has: {known}")
    return found


def _newest(template: Template) -> int:
    return versions.newest_of([template])[template.pk].number


def _version(template: Template, number: str) -> TemplateVersion:
    known = number.isascii() and number.isdecimal() and len(number) < 10
    found = template.versions.filter(number=int(number)).first() if known else None
    if found is None:
        raise CommandError(f"{template.name} has no version {number!r}; its newest is {_newest(template)}")
    return found


def _facts(row: Template, version: TemplateVersion) -> dict[str, Any]:
    return {
        "sponsor": row.sponsor.name,
        "name": row.name,
        "channel": row.channel,
        "version": version.number,
        "made_by": version.made_by,
        "made_at": version.made_at,
        "archived": row.archived_at is not None,
    }


def _shown(version: TemplateVersion) -> str:
    head = [f"{version}, by {version.made_by}, {version.made_at:%Y-%m-%d %H:%M} UTC"]
    head += [f"Remark: {version.remark}"] if version.remark else []
    head += [f"Subject: {version.subject}"] if version.subject else []
    head += [f"{name}: {value}" for name, value in version.headers or ()]
    parts = ["\n".join(head), version.body]
    if version.text:
        parts.extend(("---- the text beside it", version.text))
    return "\n\n".join(parts)
