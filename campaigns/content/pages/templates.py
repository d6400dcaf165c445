"""Pages of templates: the list, a template with its versions, differences between versions; archive, restore."""

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from campaigns.content.pages.samples import sample_of
from campaigns.content.template_versions import comparing, versions
from campaigns.doors.access import deciding_actor, owners_page
from campaigns.doors.sandboxed import guard_frames
from campaigns.models import Template, TemplateVersion
from campaigns.models.campaigns import sponsors_of
from vendors.mail_classes import CLASSES, MailClass, class_named

EACH_PAGE = 50
LOOK, ADD, CHANGE = "campaigns.view_template", "campaigns.add_template", "campaigns.change_template"
WITHOUT_TEXTS = ("subject", "body", "text", "headers")


def visible_template(request: HttpRequest, pk: int) -> Template:
    """Return the template, if it belongs to the user's sponsors. Raises Http404."""
    rows = Template.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor")
    return get_object_or_404(rows, pk=pk)


def version_of(template: Template, number: str | int) -> TemplateVersion:
    """Return the version. Raises Http404."""
    known = str(number).isdecimal() and len(str(number)) < 10
    found: TemplateVersion = get_object_or_404(template.versions, number=int(number) if known else 0)
    found.template = template
    return found


@owners_page(LOOK)
@require_GET
def list_templates_page(request: HttpRequest) -> HttpResponse:
    """Show the templates of the user's sponsors, either those in use or the archived ones."""
    archived = "archived" in request.GET
    rows = Template.objects.of_sponsors(sponsors_of(request.user)).filter(archived_at__isnull=not archived)
    some = Paginator(rows.select_related("sponsor").order_by("name", "pk"), EACH_PAGE).get_page(request.GET.get("page"))
    newest = versions.newest_of(list(some.object_list))
    listed = [(row, newest[row.pk]) for row in some.object_list]
    return render(request, "owners/templates/list.html", {"page": some, "templates": listed, "archived": archived})


@owners_page(LOOK)
@require_http_methods(["GET", "POST"])
def show_template(request: HttpRequest, pk: int, number: int | None = None) -> HttpResponse:
    """Show a template: one version as a letter with sample values, and all versions with their use.

    The samples are posted, because logs contain URLs.
    """
    row = visible_template(request, pk)
    some = Paginator(row.versions.defer(*WITHOUT_TEXTS), EACH_PAGE).get_page(request.GET.get("page"))
    newest = versions.newest_of([row])[row.pk]
    shown = version_of(row, number or newest.number)
    used = versions.campaign_uses(some.object_list)
    return guard_frames(
        render(
            request,
            "owners/templates/template.html",
            {
                "template": row,
                "newest": newest,
                "version": shown,
                "page": some,
                "versions": [(one, used.get(one.pk)) for one in some.object_list],
                "most": versions.MOST_USES,
                "classes": [("", _("by its kind")), *((word, _(word)) for word in CLASSES)],
                "class_word": MailClass(row.mail_class).word if row.mail_class else "",
                "preview": sample_of(row.channel, versions.content_of(shown), request.POST.dict()),
            },
        )
    )


@owners_page(LOOK)
@require_GET
def show_differences(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the differences of two versions; by default the newest and the one before it."""
    row = visible_template(request, pk)
    newest = versions.newest_of([row])[row.pk].number
    new = version_of(row, request.GET.get("new") or newest)
    old = version_of(row, request.GET.get("old") or max(1, new.number - 1))
    parts = comparing.find_differences(versions.content_of(old), versions.content_of(new))
    numbers = list(row.versions.values_list("number", flat=True)[:200])
    facts = {"template": row, "old": old, "new": new, "parts": parts, "numbers": numbers}
    return render(request, "owners/templates/differences.html", facts)


@owners_page(CHANGE)
@require_POST
def set_class(request: HttpRequest, pk: int) -> HttpResponseRedirect:
    """Set the class of campaigns that use the template and name none."""
    row, chosen = visible_template(request, pk), request.POST.get("mail_class", "")
    if chosen in ("", *CLASSES):
        versions.set_class(row, class_named(chosen), deciding_actor(request))
        messages.success(request, _("The class of the template “%(name)s” is kept.") % {"name": row.name})
    return redirect("template", pk)


@owners_page(CHANGE)
@require_POST
def archive_on_page(request: HttpRequest, pk: int) -> HttpResponseRedirect:
    """Archive a template: new campaigns cannot name it."""
    row = visible_template(request, pk)
    versions.archive_template(row, deciding_actor(request))
    messages.success(request, _("The template “%(name)s” is archived.") % {"name": row.name})
    return redirect("templates")


@owners_page(CHANGE)
@require_POST
def restore_on_page(request: HttpRequest, pk: int) -> HttpResponseRedirect:
    """Make an archived template usable again."""
    row = visible_template(request, pk)
    versions.restore_template(row, deciding_actor(request))
    messages.success(request, _("The template “%(name)s” can be used again.") % {"name": row.name})
    return redirect("template", pk)
