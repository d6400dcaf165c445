"""The page about recipients' answers: what they wrote, and what became of it."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy

from campaigns.audience import unread_answers
from campaigns.doors import labels
from campaigns.doors.admin_base import Scoped
from campaigns.lists.admin import SponsorFilter
from campaigns.models import RecipientAnswer
from vendors.history import Actor
from vendors.listing import choice_column, flag_column
from vendors.said import show

AT_ONCE = 1_000  # answers in one action


@admin.register(RecipientAnswer)
class RecipientAnswerAdmin(Scoped):
    """Users who may not see recipients see neither their addresses nor their texts."""

    telling = ("sender", "text", "readable_text")
    list_display = [
        "id",
        "whose",
        "writer",
        choice_column("kind"),
        flag_column("near", "Perhaps a stop", "warn"),
        "readable_text",
        "campaign",
        choice_column("outcome"),
    ]
    list_display += ["decided_by", "written_at"]
    list_filter = ["outcome", "near", "kind", SponsorFilter]
    list_select_related = ["sponsor"]
    list_per_page = 100
    ordering = ["-id"]
    sortable_by = ()
    actions = ["treat_as_stop", "mark_read"]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Show only the first character of an address to users who may not see recipients."""
        seen = labels.sees_recipients(request.user)

        @admin.display(description=gettext_lazy("from"))
        def writer(row: RecipientAnswer) -> str:
            return labels.format_recipient(row.sender, seen)

        return [writer if name == "writer" else name for name in super().get_list_display(request)]

    @admin.display(description=gettext_lazy("from"))
    def writer(self, row: RecipientAnswer) -> str:
        return labels.format_recipient(row.sender, seen=False)

    @admin.display(description=gettext_lazy("text"))
    def readable_text(self, row: RecipientAnswer) -> str:
        return row.readable_text

    @admin.display(description=gettext_lazy("sponsor"))
    def whose(self, row: RecipientAnswer) -> str:
        """Return the sponsor; numbers without an identity belong to no single sponsor."""
        return str(row.sponsor) if row.sponsor else gettext("of no identity")

    @admin.action(description=gettext_lazy("Treat as stop"), permissions=["change"])
    def treat_as_stop(self, request: HttpRequest, rows: QuerySet[RecipientAnswer]) -> None:
        self._decide_each(request, rows, unread_answers.treat_as_stop)

    @admin.action(description=gettext_lazy("Mark as read"), permissions=["change"])
    def mark_read(self, request: HttpRequest, rows: QuerySet[RecipientAnswer]) -> None:
        self._decide_each(request, rows, unread_answers.mark_read)

    def _decide_each(
        self, request: HttpRequest, rows: QuerySet[RecipientAnswer], decide: Callable[[int, Actor], bool]
    ) -> None:
        by, changed = Actor(request.user.get_username(), request.user.pk), 0
        for pk in list(rows.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
            try:
                changed += decide(pk, by)
            except unread_answers.StartedSince as error:
                self.message_user(request, show(str(error)), messages.WARNING)
        self.message_user(request, gettext("%(number)s decided.") % {"number": labels.format_number(changed)})
