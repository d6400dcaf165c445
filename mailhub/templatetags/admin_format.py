"""Template tags of the operators' pages: numbers, states as badges, progress bars."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import template
from django.contrib.admin import AllValuesFieldListFilter, ListFilter, RelatedFieldListFilter
from django.utils import timezone
from django.utils.html import format_html, json_script
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext

from campaigns.approvals import pages as approvals
from campaigns.doors import labels
from campaigns.doors.owner_phrases import tell_owner
from campaigns.engine.failover import recovery as takeover
from campaigns.engine.progress import Progress
from campaigns.models.campaigns import sponsor_ids_of
from mailhub import languages
from mailhub.operations import saved_looks, views
from mailhub.operations import sidebar as navigation
from mailhub.operations.views import clock_with_zone
from vendors import history, listing
from vendors.own_reasons import read_reason
from vendors.said import Said, gettext_noop, show

register = template.Library()
OF_ROWS = RelatedFieldListFilter, AllValuesFieldListFilter  # filters with what people have entered
LABEL = '<td data-label="{}" '
# Django's own German has another word for Save than these pages.
SAVES = gettext_noop("Save and add another"), gettext_noop("Save and continue editing"), gettext_noop("Save and view")
BADGES = gettext_noop("broken"), gettext_noop("kept"), gettext_noop("told"), gettext_noop("wrong")  # in templates
EMPTY = re.compile("<td[^>]*>-?</td>")  # cells omitted on a phone
BAR = '<span class="bar" title="{}">{}</span><small class="muted">{}<span class="visually-hidden">: {}</span></small>'


@register.filter
def number(value: Any) -> str:
    """Format a number like 1,200; an empty value stays empty."""
    return labels.format_number(value) if isinstance(value, int) else str(value or "")


@register.filter
def percent(value: int) -> str:
    """Format 25% as the language of the page writes it."""
    return labels.format_percent(value)


@register.inclusion_tag("no_sponsor.html", takes_context=True)
def no_sponsor(context: dict[str, Any], otherwise: str) -> dict[str, Any]:
    """Say why a list is empty: the user belongs to no sponsor, or `otherwise`."""
    return {"is_alone": sponsor_ids_of(context["user"]) == [], "otherwise": otherwise}


@register.filter
def cells(row: list[str], headers: list[dict[str, Any]]) -> list[SafeString]:
    """Return the cells of a row in Django's lists, labelled with their column's name for phones."""
    named = zip(row, headers, strict=False)
    return [
        SafeString(
            cell
            if "action-checkbox" in cell
            else cell.replace(
                "<td ",
                format_html(LABEL, capfirst(translated(header["text"]))) + "data-empty " * bool(EMPTY.fullmatch(cell)),
                1,
            )
        )
        for cell, header in named
    ]


@register.filter
def read_only(field: Any) -> Any:
    """Show a read-only field: a choice by its name, yes and no as words instead of Django's tick and cross."""
    shown, name = field.contents(), field.field["name"]
    text = str(shown)
    if any(one.name == name and one.choices for one in field.model_admin.opts.local_fields):
        return translated(shown)
    if not text.startswith("<img "):
        return shown
    return gettext("yes") if 'alt="True"' in text else gettext("no") if 'alt="False"' in text else "-"


@register.filter
def listed_rows(table: Any) -> list[str]:
    """Return the rows of an inline table as sentences, for those who may only look."""
    tell = getattr(table.opts, "tell_row", str)
    return [tell(form.instance) for form in table.formset.initial_forms]


@register.filter
def for_everybody(table: str) -> SafeString:
    """Make Django's inline table accessible: name its first column, and let the keyboard scroll it."""
    name = format_html('<th class="original"><span class="visually-hidden">{}</span></th>', gettext("Row"))
    found = table.replace('<th class="original"></th>', name).replace("<th></th>", "<td></td>")
    return SafeString(found.replace('<div class="tabular', '<div tabindex="0" class="tabular'))


@register.simple_tag
def badge(word: str, chosen: str = "") -> SafeString:
    """Show a state as text on a colour, never as a colour alone."""
    return listing.badge(word, chosen or look(word))


@register.filter
def look(word: str) -> str:
    """Return the CSS class of a state."""
    return labels.LOOKS.get(word, "idle")


@register.filter
def named(row: Any) -> str:
    """Return the title of a row's page."""
    return listing.row_title(row)


@register.filter
def translated(value: Any) -> Any:
    """Translate a name of the program's own, such as a choice or a heading; other values are returned unchanged."""
    text = str(value or "")
    said = show(text) if isinstance(text, Said) else gettext(text) if text else text
    return value if said == text else said


@register.filter
def shown_choice(display: Any, spec: ListFilter) -> Any:
    """Show a choice of a filter: a row by its name as it was typed, anything else in the language of the page."""
    return display if isinstance(spec, OF_ROWS) or getattr(spec, "names_rows", False) else translated(display)


@register.filter(name="said")
def show_said(text: str) -> str:
    """Show a sentence of the program in the language of the page, and somebody's own words as they were typed."""
    return show(text)


@register.filter(name="reason")
def show_reason(text: str | None) -> str:
    """Show a stored reason of a call: one of ours in the language of the page, a vendor's words as they came."""
    return show(read_reason(text or ""))


@register.filter
def sentences(entries: Iterable[Any]) -> list[tuple[Any, str]]:
    """Return entries of a history, each with its sentence in the language of the page."""
    return history.entry_sentences(entries)


@register.filter
def owner_sentences(entries: Iterable[Any]) -> list[tuple[Any, str]]:
    """Return entries of a history, each with its sentence in a campaign owner's words."""
    return history.entry_sentences(entries, tell_owner)


@register.simple_tag
def script_texts() -> SafeString:
    """Return the translations for scripts, unless the page is in English."""
    texts = languages.texts_of_scripts()
    return json_script(texts, "texts") if texts else SafeString("")


@register.simple_tag
def as_of() -> SafeString:
    """Show the time of a live page's making. Its polls update the time even if nothing else has changed."""
    text = format_html(gettext("As of {time}"), time=format_html("<time>{}</time>", clock_with_zone()))
    return format_html('<p id="as-of" class="muted">{}</p>', text)


@register.filter
def moment(at: datetime) -> str:
    """Show the time of a count older than its page."""
    return gettext("As of {time}").format(time=f"{timezone.localtime(at):%H:%M:%S %Z}")


@register.simple_tag(takes_context=True)
def sidebar(context: dict[str, Any]) -> list[tuple[str, list[navigation.SidebarLink]]]:
    """Return the groups of links in the sidebar."""
    return navigation.sidebar_groups(context.get("available_apps") or [], context["request"])


@register.inclusion_tag("admin/looks.html", takes_context=True)
def looks(context: dict[str, Any]) -> dict[str, Any]:
    """Show the user's bookmarks of this list, and a form to save this one."""
    request = context["request"]
    return {
        "looks": saved_looks.looks_of_list(request),
        "address": request.get_full_path(),
        "csrf_token": context["csrf_token"],
    }


@register.inclusion_tag("admin/operations/halt.html", takes_context=True)
def halt(context: dict[str, Any]) -> dict[str, Any]:
    """Show the notice that nothing is called, with the reason; empty if calls are made."""
    return {"halt": takeover.current_halt(), "may": context["request"].user.has_perms(views.MAY_RECOVER)}


@register.simple_tag(takes_context=True)
def approvals_waiting(context: dict[str, Any]) -> int:
    """Return how many campaigns of the user's sponsors wait for approval."""
    return approvals.waiting_for(context["user"])


@register.simple_tag
def bar(sums: Progress) -> SafeString:
    """Show a bar of messages by result; the rest waits or is suppressed.

    Its parts: delivered, else accepted; in flight; in doubt; refused, expired or bounced. Below it are the vendor's
    reports on accepted ones. Lists have one in each row.
    """
    failed, bounced = sums.refused + sums.expired, min(sums.bounced, sums.accepted)
    delivered = min(sums.delivered, sums.accepted - bounced)
    parts = (
        *(("delivered", delivered), ("good", sums.accepted - bounced - delivered)),
        *(("going", sums.in_flight), ("warn", sums.in_doubt), ("bad", failed + bounced)),
    )
    shown = "".join([f'<i class="{look}" style="flex:{count} 0 0"></i>' for look, count in parts if count])
    if sums.waiting:
        shown += f'<i style="flex:{sums.waiting} 0 0"></i>'
    counts = {
        gettext("sent"): sums.accepted,
        gettext("in flight"): sums.in_flight,
        gettext("need attention"): sums.in_doubt,
        gettext("failed"): failed,
        gettext("suppressed"): sums.suppressed,
    }
    what, size = _format_counts(counts) or gettext("nothing sent yet"), number(sums.size)
    said = gettext("%(what)s of %(all)s") % {"what": what, "all": size}
    done = gettext("%(done)s of %(size)s") % {"done": number(sums.size - sums.open_messages), "size": size}
    found = format_html(BAR, said, SafeString(shown), done, said)
    if sums.delivered or sums.bounced:
        found += format_html(
            '<br><small class="muted">{}</small>',
            _format_counts({gettext("delivered"): sums.delivered, gettext("bounced"): sums.bounced}),
        )
    return found


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number(count)} {what}" for what, count in counts.items() if count)
