"""Who may do something about a sponsor's campaigns, by name: for pages that say whom to ask."""

from django.contrib.auth.models import Permission, User
from django.db.models import Q
from django.utils.translation import gettext as _

from vendors.ownership import ALL_SPONSORS

MOST_NAMED = 3


def name_users(sponsor_id: int, right: str, form: str, but: int | None = None, nobody: str = "") -> str:
    """Name those who have a right for a sponsor's campaigns, in a sentence.

    form: the sentence, with %(names)s. but: a user who is left out. nobody: said before the advice where nobody has it.
    """
    label, codename = right.split(".")
    theirs = Permission.objects.filter(content_type__app_label=label, codename=codename)
    label, codename = ALL_SPONSORS.split(".")
    everybody = Permission.objects.filter(content_type__app_label=label, codename=codename)
    has = Q(user_permissions__in=theirs) | Q(groups__permissions__in=theirs)
    sees = Q(sponsors=sponsor_id) | Q(user_permissions__in=everybody) | Q(groups__permissions__in=everybody)
    users = User.objects.filter(Q(is_superuser=True) | (has & sees), is_active=True).exclude(pk=but or 0)
    names = list(users.order_by("username").distinct().values_list("username", flat=True)[: MOST_NAMED + 1])
    if not names:
        advice = _("Nobody can do that yet: ask whoever runs mailhub for a user with the right.")
        return f"{nobody} {advice}".strip()
    shown = names[:MOST_NAMED]
    if len(names) > MOST_NAMED:
        return form % {"names": _("%(names)s and others") % {"names": ", ".join(shown)}}
    said = _("%(names)s or %(last)s") % {"names": ", ".join(shown[:-1]), "last": shown[-1]} if shown[1:] else shown[0]
    return form % {"names": said}
