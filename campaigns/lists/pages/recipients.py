"""The second step: the list of recipients, its columns, and the faults of its rows."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from campaigns.doors.downloads import download_file
from campaigns.engine.ports import NotEntitled
from campaigns.lists.drafts import blocks, checking, contents, keeping
from campaigns.lists.drafts.columns import HIDDEN_ROWS
from campaigns.lists.drafts.keeping import LIST, Stale
from campaigns.lists.intake import BadInput
from campaigns.lists.pages.drafts import check_soon, draft_step, render_step, show_conflict
from campaigns.models import Draft, DraftBlock
from campaigns.texts.templates import TemplateError
from vendors import said


@draft_step
def show_list(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Show the list and the result of its check."""
    return render_step(request, "recipients", draft, _list_context(draft))


@draft_step
def show_check_progress(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Render the progress of the check; once it has ended, the whole page reloads."""
    if draft.busy != Draft.CHECKING:
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    return render(request, "owners/wizard/checking.html", {"draft": draft})


def _list_context(draft: Draft) -> dict[str, Any]:
    facts = draft.found
    context: dict[str, Any] = {"facts": facts, "most": settings.LIST_BYTES, "needed": _needed_fields(draft)}
    context["megabytes"] = settings.LIST_BYTES / 1_000_000
    if facts:
        context["problems"] = checking.problems_of(facts)
        context["whole"] = not facts["good"] and not facts["rows"]  # the list as a whole is bad
        context["goes"] = facts["good"] - facts["suppressed"]
        context |= _sheet_context(draft, facts)
    return context


# Values of a spreadsheet that a message gets in another form than shown there: that form, and its display.
GIVEN = (
    ("date", gettext_lazy("Dates"), "date"),
    ("time", gettext_lazy("Times"), "time"),
    ("money", gettext_lazy("Amounts of money"), 'money("EUR")'),
    ("percent", gettext_lazy("Percentages"), "percent"),
    ("number", gettext_lazy("Numbers with a format"), "number"),
)


def _sheet_context(draft: Draft, facts: dict[str, Any]) -> dict[str, Any]:
    """Return decisions and facts about a spreadsheet. Checks stored by older versions have none."""
    names = {one["header"]: one["field"] for one in facts["columns"]}
    examples = facts.get("examples", {})
    given = []
    for kind, title, by in GIVEN:
        columns = [(header, value) for header, value in examples.get(kind, ()) if header != facts["recipient"]]
        if columns:
            header, value = columns[0]
            use = f"{{{{ {names.get(header, header)}|{by} }}}}"
            given.append({"title": title, "columns": [one for one, _ in columns], "value": value, "use": use})
    hidden = facts.get("hidden", 0)
    merged = examples.get("merged", ())
    return {
        "given": given,
        "merged": [one for one, _ in merged],
        "merged_rows": merged[0][1] if merged else "",
        "hidden": hidden,
        "hidden_choice": draft.columns.get(HIDDEN_ROWS, "") if hidden else "",
    }


def _needed_fields(draft: Draft) -> list[str]:
    """Return the fields that the message shows."""
    try:
        made = contents.content_of_draft(draft).compiled
    except (BadInput, TemplateError, NotEntitled):
        return []
    return sorted(made.fields | made.optional)


@require_POST
@draft_step
def upload_on_page(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Store a list in place of the one before."""
    file = request.FILES.get("list")
    if file is None:
        messages.error(request, _("Choose a file first."))
        return redirect("draft_recipients", draft.pk)
    try:
        draft = keeping.upload_list(draft, request.POST.get("seen", ""), file.name or "list", file.file, file.size or 0)
    except BadInput as error:
        messages.error(request, said.show(str(error)))
    except Stale as stale:
        typed = {"list_name": file.name}
        return show_conflict(request, stale.draft, LIST, typed)
    else:
        check_soon(draft)
    return redirect("draft_recipients", draft.pk)


@require_POST
@draft_step
def choose_columns(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Store the choice of the recipient column and of the others' names in the message."""
    headers, names = request.POST.getlist("header"), request.POST.getlist("field")
    known = {one["header"] for one in (draft.facts or {}).get("columns", ())}
    chosen: dict[str, Any] = {**draft.columns, "recipient": request.POST.get("recipient", "")}
    chosen["names"] = {h: n.strip()[:100] for h, n in zip(headers, names, strict=False) if h in known and n.strip()}
    values = {"columns": chosen, "leave_out": False}
    try:
        draft = keeping.save(draft, LIST, request.POST.get("seen", ""), values)
    except Stale as stale:
        return show_conflict(request, stale.draft, LIST, values)
    check_soon(draft)
    return redirect("draft_recipients", draft.pk)


@require_POST
@draft_step
def hidden_rows(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Decide about sending the hidden rows of a spreadsheet, too."""
    choice = request.POST.get("choice", "")
    if choice not in ("keep", "leave_out"):
        return redirect("draft_recipients", draft.pk)
    values = {"columns": {**draft.columns, HIDDEN_ROWS: choice}, "leave_out": False}
    try:
        draft = keeping.save(draft, LIST, request.POST.get("seen", ""), values)
    except Stale as stale:
        return show_conflict(request, stale.draft, LIST, values)
    check_soon(draft)
    return redirect("draft_recipients", draft.pk)


@require_POST
@draft_step
def leave_out(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Leave out the bad rows, if their number is the one shown, and continue."""
    total = request.POST.get("total", "")
    try:
        keeping.leave_out(draft, request.POST.get("seen", ""), int(total) if total.isdecimal() else -1)
    except BadInput as error:
        messages.warning(request, said.show(str(error)))
        return redirect("draft_recipients", draft.pk)
    except Stale as stale:
        return show_conflict(request, stale.draft, LIST, {"leave_out": True})
    return redirect("draft_check", draft.pk)


@require_POST
@draft_step
def check_again(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Check a list again, because the last check was for another message."""
    check_soon(draft)
    return redirect("draft_recipients", draft.pk)


@draft_step
def bad_rows(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Download the rows left out, with their faults, as CSV."""
    facts = draft.found
    if not facts or not facts["rows"] or not facts["total"]:
        raise Http404
    name = slugify(draft.list_name.rpartition(".")[0]) or "list"
    answer: HttpResponse = download_file(
        blocks.yield_blocks(draft.pk, DraftBlock.LEFT_OUT, facts["version"]), f"{name}-bad-rows.csv"
    )
    return answer
