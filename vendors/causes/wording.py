"""The six causes in words, for everybody who reads a page, a file or a list. Nothing else words them."""

from collections.abc import Iterable

from django.utils.translation import gettext, gettext_noop

from vendors.causes import AnswerCause

CAUSE_LABELS = {  # in English, as files have them; pages translate them
    AnswerCause.RECIPIENT: gettext_noop("The recipient"),
    AnswerCause.CONTENT: gettext_noop("The content"),
    AnswerCause.US: gettext_noop("Our account"),
    AnswerCause.CAPACITY: gettext_noop("A limit"),
    AnswerCause.VENDOR: gettext_noop("The vendor"),
    AnswerCause.UNKNOWN: gettext_noop("Unknown"),
}
KNOWN_CAUSES = frozenset(cause.value for cause in AnswerCause)


def word_cause(cause: str | None) -> str:
    """Return a stored cause in the language of the page; "" if there is none."""
    return gettext(CAUSE_LABELS[AnswerCause(cause)]) if cause else ""


def list_causes() -> list[tuple[str, str]]:
    """Return the causes with their words, in the language of the page."""
    return [(cause.value, gettext(word)) for cause, word in CAUSE_LABELS.items()]


def read_causes(names: Iterable[str]) -> list[str]:
    """Return the causes that these names mean, in any case. Raises ValueError, which lists the known ones."""
    wanted = [name.strip().lower() for name in names]
    if strange := [name for name in wanted if name not in KNOWN_CAUSES]:
        raise ValueError(f"{strange[0]!r} is no cause; there are {', '.join(AnswerCause)}")
    return wanted
