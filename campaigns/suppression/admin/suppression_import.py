"""The page that suppresses the addresses of a file, with the code of the command `suppression import`."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext, gettext_lazy, ngettext

from campaigns.doors import labels
from campaigns.lists.intake import BadInput
from campaigns.lists.intake.suppression_file import SuppressionFile
from campaigns.models import Sponsor, Suppression, Topic
from campaigns.suppression import suppressing
from campaigns.suppression.lists import MOST_TEXT, NewSuppression
from vendors.history import Actor
from vendors.models import Vendor

MOST = 100_000  # addresses, stored in some seconds
UNPACKED = 100_000_000  # bytes of a spreadsheet: a thousand for each address


class ImportForm(forms.Form):
    sponsor = forms.ModelChoiceField(Sponsor.objects.none(), label=gettext_lazy("Sponsor"))
    channel = forms.ChoiceField(choices=labels.form_choices(Vendor.Channel), label=gettext_lazy("Channel"))
    reason = forms.ChoiceField(
        choices=labels.form_choices(Suppression.Reason),
        label=gettext_lazy("Reason"),
        help_text=gettext_lazy("For rows without a reason"),
    )
    source = forms.CharField(
        max_length=MOST_TEXT,
        required=False,
        label=gettext_lazy("Source"),
        help_text=gettext_lazy("For rows without a source; if empty, the file's name"),
    )
    file = forms.FileField(max_length=255, label=gettext_lazy("File"))

    def __init__(self, *args: Any, sponsors: Any, for_all: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["sponsor"]
        field.queryset, field.required = sponsors, not for_all
        field.help_text = gettext("Empty: of all sponsors") if for_all else ""
        most = gettext(
            "CSV or a spreadsheet (XLSX, ODS, XLS), up to 5 MB and %(most)s addresses; larger ones: suppression import"
        )
        self.fields["file"].help_text = most % {"most": labels.format_number(MOST)}
        self.rows: SuppressionFile | None = None

    def clean_file(self) -> Any:
        """Read the whole file, so that a bad one stores nothing."""
        file, given = self.cleaned_data["file"], self.cleaned_data
        if not {"sponsor", "channel", "reason"} <= given.keys():
            return file
        default = NewSuppression("", given["reason"], given.get("source") or file.name[:MOST_TEXT])
        topics = dict(Topic.objects.filter(sponsor=given["sponsor"]).values_list("name", "pk"))
        try:
            region = given["sponsor"].phone_region if given["sponsor"] else ""
            self.rows = SuppressionFile(
                file.file, given["channel"], default, topics, MOST, most_unpacked=UNPACKED, region=region
            )
        except BadInput as error:
            raise ValidationError(str(error)) from error
        return file


def import_sentence(added: int, rest: int) -> str:
    """Return the sentence about an import's result."""
    first = ngettext("%(number)s address is suppressed.", "%(number)s addresses are suppressed.", added)
    if not rest:
        return first % {"number": labels.format_number(added)}
    more = ngettext(
        " %(rest)s was so already, was given twice, or has ended.",
        " %(rest)s were so already, were given twice, or have ended.",
        rest,
    )
    return first % {"number": labels.format_number(added)} + more % {"rest": labels.format_number(rest)}


def import_page(request: HttpRequest, context: dict[str, Any], sponsors: Any, for_all: bool, by: Actor) -> HttpResponse:
    """Show the form and import the file.

    sponsors: the user may add suppressions for these; for_all: and for all sponsors.
    """
    posted = (request.POST, request.FILES) if request.method == "POST" else ()
    form = ImportForm(*posted, sponsors=sponsors, for_all=for_all)
    if not form.is_valid() or form.rows is None:
        context = {**context, "title": gettext("Import suppressions"), "form": form}
        return TemplateResponse(request, "admin/campaigns/suppression/import.html", context)
    whose = form.cleaned_data["sponsor"]
    added = suppressing.add_and_record(whose.pk if whose else None, form.cleaned_data["channel"], form.rows, by)
    rest = len(form.rows) - added
    messages.success(request, import_sentence(added, rest))
    if form.rows.hidden:
        shown = ngettext(
            "%(number)s of them is in a row that the spreadsheet hides.",
            "%(number)s of them are in rows that the spreadsheet hides.",
            form.rows.hidden,
        )
        messages.info(request, shown % {"number": labels.format_number(form.rows.hidden)})
    return redirect("admin:campaigns_suppression_changelist")
