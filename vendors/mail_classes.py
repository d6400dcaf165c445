"""The classes of mail: urgent mail goes before other mail at a vendor (campaigns/engine/turns)."""

from django.db.models import IntegerChoices

from vendors.said import Said, gettext_noop


class MailClass(IntegerChoices):
    """The class of a job; a smaller one goes first. It is stored, so a number keeps its meaning."""

    URGENT = 1, gettext_noop("urgent")
    USUAL = 2, gettext_noop("usual")
    BULK = 3, gettext_noop("bulk")

    @property
    def word(self) -> str:
        """Its word in commands, requests and metrics."""
        return self.name.lower()


CLASSES = {one.word: one for one in MailClass}
FLOOR, FLOOR_MAX = 10, 40  # percent of a vendor's rate that each lower class keeps; 40: two of them leave some


def class_named(word: str | None) -> MailClass | None:
    """Return the class of this word; None without a word. Raises KeyError."""
    return CLASSES[word] if word else None


def warn_of_floor(mail_class: MailClass, vendor: str, floor: int) -> str:
    """Return what mail of this class has to expect at a vendor without a floor; "" elsewhere. vendor: its name."""
    if floor or mail_class == MailClass.URGENT:
        return ""
    form = gettext_noop("%(vendor)s has no floor: %(mail_class)s mail waits there as long as more urgent mail comes")
    return Said(form, vendor=vendor, mail_class=Said(mail_class.label))


NO_FLOOR = gettext_noop("It has no floor: usual and bulk mail waits as long as more urgent mail comes.")
