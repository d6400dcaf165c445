"""The editor of templates: a save stores the next version, unless somebody else has stored one meanwhile.

In that case the user sees both and can still save; the own version becomes the next one, and neither is lost.
"""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from campaigns.content.pages.samples import sample_of
from campaigns.content.pages.templates import ADD, CHANGE, version_of, visible_template
from campaigns.content.template_versions import comparing, versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.doors import labels
from campaigns.doors.access import deciding_actor, owners_page
from campaigns.doors.sandboxed import guard_frames
from campaigns.models import Sponsor, Template, TemplateVersion
from campaigns.models.campaigns import sponsors_of
from campaigns.texts.parts import parse_header
from campaigns.texts.templates import RECIPIENT, TemplateError
from vendors.models import Vendor

MOST = 1_000_000  # characters of a body


class ContentForm(forms.Form):
    """The content of a version, with a remark about the changes."""

    subject = forms.CharField(label=gettext_lazy("Subject"), required=False, max_length=10_000, strip=False)
    body = forms.CharField(
        label=gettext_lazy("Body"),
        max_length=MOST,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 18}),
        help_text=gettext_lazy(
            "{{ name }} shows the field “name” of a recipient; {% if name %}…{% endif %} is left out where it is empty."
        ),
    )
    html = forms.BooleanField(label=gettext_lazy("The body is HTML"), required=False)
    text = forms.CharField(
        label=gettext_lazy("Text beside the HTML"),
        required=False,
        max_length=MOST,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text=gettext_lazy("For programs that show no HTML. Empty: it is made from the HTML."),
    )
    headers = forms.CharField(
        label=gettext_lazy("Further headers of e-mail"),
        required=False,
        max_length=30_000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("One in each line, like Precedence: bulk"),
    )
    remark = forms.CharField(label=gettext_lazy("What is new in this version?"), required=False, max_length=255)
    based_on = forms.IntegerField(min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)

    def given_content(self) -> TemplateContent:
        """Return the content. Raises TemplateError."""
        given = self.cleaned_data
        lines = [line for line in given["headers"].splitlines() if line.strip()]
        headers = [parse_header(line) for line in lines]
        return TemplateContent(given["subject"], given["body"], given["html"], given["text"], headers).made_uniform()


class NewTemplateForm(ContentForm):
    """The form of a new template, with its sponsor, name and channel."""

    field_order = ("sponsor", "name", "channel")
    sponsor = forms.ModelChoiceField(Sponsor.objects.none(), label=gettext_lazy("Sponsor"), empty_label=None)
    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    channel = forms.ChoiceField(
        label=gettext_lazy("Channel"), choices=labels.form_choices(Vendor.Channel), initial="email"
    )

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["sponsor"]
        field.queryset = Sponsor.objects.of_sponsors(sponsors_of(user))


@owners_page(ADD)
@require_http_methods(["GET", "POST"])
def new_template(request: HttpRequest) -> HttpResponse:
    """Create a template with its first version."""
    form = NewTemplateForm(request.POST or None, user=request.user, initial={"based_on": 0})
    return _edit_content(request, None, form)


@owners_page(CHANGE)
@require_http_methods(["GET", "POST"])
def edit_template(request: HttpRequest, pk: int) -> HttpResponse:
    """Edit the next version, starting from the newest or from the one the URL names."""
    row = visible_template(request, pk)
    newest = versions.newest_of([row])[row.pk].number
    return _edit_content(
        request, row, ContentForm(request.POST or None, initial=_initial_content(row, newest, request))
    )


def _initial_content(row: Template, newest: int, request: HttpRequest) -> dict[str, Any]:
    says = versions.content_of(version_of(row, request.GET.get("from") or newest))
    headers = "\n".join(f"{name}: {value}" for name, value in says.headers)
    facts = {"subject": says.subject, "body": says.body, "html": says.html, "text": says.text}
    return {**facts, "headers": headers, "based_on": newest}


def _edit_content(request: HttpRequest, row: Template | None, form: ContentForm) -> HttpResponse:
    facts: dict[str, Any] = {"form": form, "template": row, "fields": [f"{{{{ {RECIPIENT} }}}}"]}
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            channel = row.channel if row else form.cleaned_data["channel"]
            try:
                content = form.given_content()
                if "preview" not in request.POST:
                    return _save_version(request, row, form, channel, content)
                facts["preview"] = sample_of(channel, content, request.POST.dict())
                status = 200
            except (TemplateError, versions.TemplateRefused) as error:
                facts["fault"] = str(error)
            except versions.NewerVersion as error:
                facts |= _show_newer_version(row, form, content, error.newest)
                status = 409
    answer = render(request, "owners/templates/edit.html", facts, status=status)
    return guard_frames(answer)


def _save_version(
    request: HttpRequest, row: Template | None, form: ContentForm, channel: str, content: TemplateContent
) -> HttpResponse:
    given = form.cleaned_data
    sponsor_id, name = (row.sponsor_id, row.name) if row else (given["sponsor"].pk, given["name"])
    added = versions.add_version(
        sponsor_id, name, channel, content, deciding_actor(request), given["remark"], given["based_on"]
    )
    said = _("Version %(number)s of “%(name)s” is stored.") if added.new else _("“%(name)s” says that already.")
    messages.success(request, said % {"number": added.version.number, "name": name})
    return redirect("template", added.version.template_id)


def _show_newer_version(
    row: Template | None, form: ContentForm, content: TemplateContent, newest: TemplateVersion | None
) -> dict[str, Any]:
    """Return the newer version next to the one to save; the next save starts from the newer."""
    if newest is None or row is None:
        return {"taken": newest}
    form.data = {**form.data.dict(), "based_on": str(newest.number)}  # type: ignore[attr-defined]
    return {"newer": newest, "parts": comparing.find_differences(versions.content_of(newest), content)}
