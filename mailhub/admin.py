"""Admin pages of parked tasks (with due time, release and cancel) and of beat's crontabs."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminTextInputWidget
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext, gettext_lazy, ngettext
from django_celery_beat.admin import CrontabScheduleAdmin
from django_celery_beat.models import CrontabSchedule
from kombu.exceptions import OperationalError

from vendors.listing import OwnLookups
from vendors.ownership import ALL_SPONSORS
from waiter import parking
from waiter.models import ParkedTask
from waiter.release import release_parked

admin.site.unregister(CrontabSchedule)


@admin.register(CrontabSchedule)
class CrontabAdmin(CrontabScheduleAdmin):  # type: ignore[misc]  # a package without types
    """Crontabs with a typed time zone, as elsewhere; a list of six hundred takes longer than the rest of the page."""

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "timezone":
            kwargs["widget"] = AdminTextInputWidget()
        return super().formfield_for_choice_field(db_field, request, **kwargs)


@admin.register(ParkedTask)
class ParkedTaskAdmin(OwnLookups):
    """A read-only list; its actions ask for confirmation.

    A task has no sponsor, so only users who may see all sponsors' mail see it.
    """

    list_display = ["id", "task", "due_in", "due_at", "queue"]
    list_filter = ["queue", "task"]
    search_fields = ["=task_id"]
    show_full_result_count = False
    actions = ["release", "cancel"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ParkedTask]:
        return ParkedTask.waiting.all()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return _sees_all(request) and super().has_module_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: ParkedTask | None = None) -> bool:
        return _sees_all(request) and super().has_view_permission(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: ParkedTask | None = None) -> bool:
        return _sees_all(request) and super().has_change_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ParkedTask | None = None) -> bool:
        return False  # unlike this, the action `cancel` also stops a task during its release

    def get_readonly_fields(self, request: HttpRequest, obj: ParkedTask | None = None) -> list[str]:
        return [field.name for field in ParkedTask._meta.fields]

    @admin.display(description="due in", ordering="due_at")
    def due_in(self, row: ParkedTask) -> str:
        return row.due_in(parking.now())

    @admin.action(description=gettext_lazy("Release now"), permissions=["change"])
    def release(self, request: HttpRequest, rows: QuerySet[ParkedTask]) -> TemplateResponse | None:
        if not _is_confirmed(request, rows):
            outcome = ngettext("%(count)s task will run now:", "%(count)s tasks will run now:", rows.count())
            return self._ask_to_confirm(request, rows, "release", gettext("Release parked tasks"), outcome)
        ids = _ids_of_rows(rows)
        parking.bring_forward(ids, parking.now())
        try:
            release_parked.delay()
        except OperationalError:
            messages.warning(request, gettext("The broker cannot be reached; the sweep releases them when it is back."))
        said = ngettext("%(count)s task is due now.", "%(count)s tasks are due now.", len(ids))
        messages.success(request, said % {"count": len(ids)})
        return None

    @admin.action(description=gettext_lazy("Cancel"), permissions=["change"])
    def cancel(self, request: HttpRequest, rows: QuerySet[ParkedTask]) -> TemplateResponse | None:
        if not _is_confirmed(request, rows):
            outcome = ngettext("%(count)s task will never run:", "%(count)s tasks will never run:", rows.count())
            return self._ask_to_confirm(request, rows, "cancel", gettext("Cancel parked tasks"), outcome)
        cancelled = parking.cancel(_ids_of_rows(rows), parking.now())
        said = ngettext("%(count)s task is cancelled.", "%(count)s tasks are cancelled.", len(cancelled))
        messages.success(request, said % {"count": len(cancelled)})
        return None

    def _ask_to_confirm(
        self, request: HttpRequest, rows: QuerySet[ParkedTask], action: str, title: str, outcome: str
    ) -> TemplateResponse:
        count = rows.count()
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "action": action,
            "outcome": outcome % {"count": count},
            "count": count,
            "first": rows[:20],
            "selected": request.POST.getlist("_selected_action"),
            "across": request.POST.get("select_across", "0"),
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/waiter/parkedtask/confirm.html", context)


def _sees_all(request: HttpRequest) -> bool:
    user: Any = request.user
    return bool(user.has_perm(ALL_SPONSORS))


def _is_confirmed(request: HttpRequest, rows: QuerySet[ParkedTask]) -> bool:
    """Return True if the user has confirmed this number of tasks; if it has changed, the page asks again."""
    return request.POST.get("confirmed") == str(rows.count())


def _ids_of_rows(rows: Iterable[ParkedTask]) -> list[Any]:
    return [row.pk for row in rows]
