"""`manage.py template`: manages sponsors' templates and their versions."""

from typing import Any

from django.core.management.base import CommandError

from campaigns.content.template_versions import comparing, versions
from campaigns.doors.sponsors import KNOWN, filter_by_sponsor, find_of_sponsor, named_sponsor
from campaigns.lists.content_options import typed_content
from campaigns.models import Template, TemplateVersion
from campaigns.texts.templates import TemplateError
from vendors.history import Actor
from vendors.mail_classes import CLASSES, MailClass
from vendors.management.arguments import shell_user
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb
from vendors.models import Vendor

NAMED = (declare_argument("sponsor"), declare_argument("name", metavar="NAME"))
VERSIONS = ("version", "made_by", "made_at", "remark", "campaigns")

BY_KIND = "by-kind"
BASED_ON = "the version that this started from, 0: none; if there is a newer one, nothing is stored"
CONTENT = (
    declare_argument("--channel", choices=Vendor.Channel.values, help="of a new template"),
    declare_argument("--subject", default="", metavar="TEXT", help="e-mail must have one"),
    declare_argument("--body", required=True, metavar="TEMPLATE_FILE", help="UTF-8"),
    declare_argument("--html", action="store_true", help="the body is HTML: fields are escaped in it"),
    declare_argument("--mjml", action="store_true", help="the body is MJML; its HTML is stored"),
    declare_argument(
        "--text",
        metavar="TEMPLATE_FILE",
        help="beside an HTML body; default: made from the HTML by each campaign",
    ),
    declare_argument(
        "--header", action="append", metavar="NAME:VALUE", help="a further header of e-mail; may be repeated"
    ),
    declare_argument("--remark", default="", metavar="TEXT", help="the news in it, for people"),
    declare_argument("--based-on", type=int, metavar="VERSION", help=BASED_ON),
)


class Command(ResourceCommand):
    help = (
        "Templates of sponsors: list, show, versions, add, diff, class, archive, restore. A version never changes: add "
        "stores the next one, compiled and checked; send_campaign --template NAME@VERSION names one. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    shown = ("sponsor", "name", "channel", "version", "made_by", "made_at", "archived")

    @declare_verb(
        "all, or those of a sponsor",
        declare_argument("sponsor", nargs="?"),
        declare_argument("--archived", action="store_true", help="the archived ones instead"),
    )
    def do_list(self, sponsor: str | None, **options: Any) -> None:
        rows = Template.objects.select_related("sponsor").filter(archived_at__isnull=not options["archived"])
        found = list(filter_by_sponsor(rows, sponsor))
        newest = versions.newest_of(found)
        self.write_facts([_template_facts(row, newest[row.pk]) for row in found], self.shown)

    @declare_verb(
        "a version's text, by default the newest",
        declare_argument("sponsor"),
        declare_argument("name", metavar="NAME[@VERSION]"),
    )
    def do_show(self, sponsor: str, name: str, **options: Any) -> None:
        plain, at, number = name.rpartition("@") if "@" in name else (name, "", "")
        template = _named_template(sponsor, plain)
        version = _find_version(template, number) if at else template.versions.get(number=_newest_number(template))
        says = versions.content_of(version)
        facts = {
            **_template_facts(template, version),
            "subject": says.subject,
            "body": says.body,
            "html": says.html,
            "text": says.text,
            "headers": dict(says.headers),
            "remark": version.remark,
        }
        self.write_result(_version_as_text(version), facts)

    @declare_verb("all versions, and how many campaigns each has", *NAMED)
    def do_versions(self, sponsor: str, name: str, **options: Any) -> None:
        template = _named_template(sponsor, name)
        rows = list(template.versions.defer("subject", "body", "text", "headers"))
        used = versions.campaign_uses(rows)
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
        self.write_facts(lines, VERSIONS)

    @declare_verb("the next version; the first one makes the template", *NAMED, *CONTENT)
    def do_add(self, sponsor: str, name: str, **options: Any) -> None:
        of = named_sponsor(sponsor)
        known = Template.objects.filter(sponsor=of, name=name).first()
        channel = options["channel"] or (known.channel if known else "")
        if not channel:
            raise CommandError("a new template needs a --channel", returncode=2)
        by = Actor(shell_user())
        try:
            content = typed_content(options, channel)
            added = versions.add_version(of.pk, name, channel, content, by, options["remark"], options["based_on"])
        except (TemplateError, versions.TemplateRefused, versions.NewerVersion) as error:
            raise CommandError(f"nothing was stored: {error}") from None
        what = "added" if added.new else "says that already; nothing was added"
        facts = {**_template_facts(added.version.template, added.version), "added": added.new}
        self.write_result(f"{of.name}/{added.version}: {what}", facts)

    @declare_verb(
        "what two versions differ in", *NAMED, declare_argument("old", type=int), declare_argument("new", type=int)
    )
    def do_diff(self, sponsor: str, name: str, old: int, new: int, **options: Any) -> None:
        template = _named_template(sponsor, name)
        before, after = (versions.content_of(_find_version(template, str(number))) for number in (old, new))
        parts = comparing.find_differences(before, after)
        text = comparing.comparison_as_text(parts)
        facts = {"name": name, "old": old, "new": new, "differences": text}
        self.write_result(text or f"{name}@{old} and {name}@{new} say the same", facts)

    @declare_verb(
        "the class of campaigns that name none",
        *NAMED,
        declare_argument(
            "mail_class", choices=(*CLASSES, BY_KIND), help="by-kind: bulk, or usual if nobody can unsubscribe"
        ),
    )
    def do_class(self, sponsor: str, name: str, mail_class: str, **options: Any) -> None:
        template = _named_template(sponsor, name)
        changed = versions.set_class(template, CLASSES.get(mail_class), Actor(shell_user()))
        facts = {"sponsor": template.sponsor.name, "name": template.name, "class": mail_class, "changed": changed}
        self.write_result(
            f"{template.sponsor.name}/{template.name}: {mail_class}{'' if changed else ' already'}", facts
        )

    @declare_verb("no new campaign can name it", *NAMED)
    def do_archive(self, sponsor: str, name: str, **options: Any) -> None:
        template = _named_template(sponsor, name)
        changed = versions.archive_template(template, Actor(shell_user()))
        self._write_archived(template, "archived" if changed else "was archived already")

    @declare_verb("it can be named again", *NAMED)
    def do_restore(self, sponsor: str, name: str, **options: Any) -> None:
        template = _named_template(sponsor, name)
        changed = versions.restore_template(template, Actor(shell_user()))
        self._write_archived(template, "restored" if changed else "was not archived")

    def _write_archived(self, template: Template, what: str) -> None:
        facts = {"sponsor": template.sponsor.name, "name": template.name, "archived": bool(template.archived_at)}
        self.write_result(f"{template.sponsor.name}/{template.name}: {what}", facts)


def _named_template(sponsor: str, name: str) -> Template:
    return find_of_sponsor(Template.objects.all(), named_sponsor(sponsor), "template", name, most=KNOWN)


def _newest_number(template: Template) -> int:
    return versions.newest_of([template])[template.pk].number


def _find_version(template: Template, number: str) -> TemplateVersion:
    known = number.isascii() and number.isdecimal() and len(number) < 10
    found = template.versions.filter(number=int(number)).first() if known else None
    if found is None:
        raise CommandError(f"{template.name} has no version {number!r}; its newest is {_newest_number(template)}")
    return found


def _template_facts(row: Template, version: TemplateVersion) -> dict[str, Any]:
    return {
        "sponsor": row.sponsor.name,
        "name": row.name,
        "channel": row.channel,
        "version": version.number,
        "made_by": version.made_by,
        "made_at": version.made_at,
        "class": MailClass(row.mail_class).word if row.mail_class else None,
        "archived": row.archived_at is not None,
    }


def _version_as_text(version: TemplateVersion) -> str:
    head = [f"{version}, by {version.made_by}, {version.made_at:%Y-%m-%d %H:%M} UTC"]
    head += [f"Remark: {version.remark}"] if version.remark else []
    head += [f"Subject: {version.subject}"] if version.subject else []
    head += [f"{name}: {value}" for name, value in version.headers or ()]
    parts = ["\n".join(head), version.body]
    if version.text:
        parts.extend(("---- the text beside it", version.text))
    return "\n\n".join(parts)
