"""Texts of the recipients' pages, in the languages that a sponsor can choose.

{sponsor} is the sponsor's name, {topic} a topic's title.
"""

from dataclasses import dataclass

from django.utils.translation.trans_real import parse_accept_lang_header


@dataclass(frozen=True, slots=True)
class Phrases:
    """The page's texts in one language. from_*, without_*: the current state."""

    title: str
    from_all: str
    from_topic: str
    button_all: str
    button_topic: str
    without_all: str
    without_topic: str
    again: str
    subscribed: str
    unknown: str
    preview: str
    later: str


ENGLISH = Phrases(
    "Unsubscribe",
    "You get messages from {sponsor}.",
    "You get “{topic}” from {sponsor}.",
    "Unsubscribe from all messages of {sponsor}",
    "Unsubscribe from “{topic}”",
    "You are unsubscribed from all messages of {sponsor}.",
    "You are unsubscribed from “{topic}” of {sponsor}.",
    "Subscribe again",
    "You are subscribed again.",
    "This link is not complete. Please copy all of it from the message.",
    "This link belongs to a preview: nobody is unsubscribed with it.",
    "This cannot be done right now. Please try again in a few minutes.",
)
LANGUAGES = {
    "en": ENGLISH,
    "de": Phrases(
        "Abmelden",
        "Sie erhalten Nachrichten von {sponsor}.",
        "Sie erhalten „{topic}“ von {sponsor}.",
        "Von allen Nachrichten von {sponsor} abmelden",
        "Von „{topic}“ abmelden",
        "Sie sind von allen Nachrichten von {sponsor} abgemeldet.",
        "Sie sind von „{topic}“ von {sponsor} abgemeldet.",
        "Wieder anmelden",
        "Sie sind wieder angemeldet.",
        "Dieser Link ist nicht vollständig. Bitte kopieren Sie ihn ganz aus der Nachricht.",
        "Dieser Link gehört zu einer Vorschau: Mit ihm wird niemand abgemeldet.",
        "Das ist gerade nicht möglich. Bitte versuchen Sie es in einigen Minuten noch einmal.",
    ),
    "fr": Phrases(
        "Se désabonner",
        "Vous recevez des messages de {sponsor}.",
        "Vous recevez « {topic} » de {sponsor}.",
        "Se désabonner de tous les messages de {sponsor}",
        "Se désabonner de « {topic} »",
        "Vous êtes désabonné(e) de tous les messages de {sponsor}.",
        "Vous êtes désabonné(e) de « {topic} » de {sponsor}.",
        "Se réabonner",
        "Vous êtes de nouveau abonné(e).",
        "Ce lien est incomplet. Veuillez le copier en entier depuis le message.",
        "Ce lien appartient à un aperçu : il ne désabonne personne.",
        "C’est impossible pour le moment. Veuillez réessayer dans quelques minutes.",
    ),
    "es": Phrases(
        "Darse de baja",
        "Usted recibe mensajes de {sponsor}.",
        "Usted recibe «{topic}» de {sponsor}.",
        "Darse de baja de todos los mensajes de {sponsor}",
        "Darse de baja de «{topic}»",
        "Se ha dado de baja de todos los mensajes de {sponsor}.",
        "Se ha dado de baja de «{topic}» de {sponsor}.",
        "Volver a suscribirse",
        "Vuelve a estar suscrito.",
        "Este enlace está incompleto. Cópielo entero del mensaje, por favor.",
        "Este enlace es de una vista previa: no da de baja a nadie.",
        "Ahora no es posible. Inténtelo de nuevo dentro de unos minutos, por favor.",
    ),
    "it": Phrases(
        "Annulla l’iscrizione",
        "Lei riceve messaggi da {sponsor}.",
        "Lei riceve «{topic}» da {sponsor}.",
        "Annulla l’iscrizione a tutti i messaggi di {sponsor}",
        "Annulla l’iscrizione a «{topic}»",
        "La sua iscrizione a tutti i messaggi di {sponsor} è annullata.",
        "La sua iscrizione a «{topic}» di {sponsor} è annullata.",
        "Iscriviti di nuovo",
        "La sua iscrizione è di nuovo attiva.",
        "Questo link è incompleto. Lo copi per intero dal messaggio, per favore.",
        "Questo link appartiene a un’anteprima: non annulla nessuna iscrizione.",
        "Al momento non è possibile. Riprovi tra qualche minuto, per favore.",
    ),
    "nl": Phrases(
        "Afmelden",
        "U ontvangt berichten van {sponsor}.",
        "U ontvangt ‘{topic}’ van {sponsor}.",
        "Afmelden voor alle berichten van {sponsor}",
        "Afmelden voor ‘{topic}’",
        "U bent afgemeld voor alle berichten van {sponsor}.",
        "U bent afgemeld voor ‘{topic}’ van {sponsor}.",
        "Weer aanmelden",
        "U bent weer aangemeld.",
        "Deze link is niet volledig. Kopieer hem helemaal uit het bericht.",
        "Deze link hoort bij een voorbeeld: er wordt niemand mee afgemeld.",
        "Dit lukt nu niet. Probeer het over een paar minuten opnieuw.",
    ),
}


def choose_phrases(chosen: str, accepted: str) -> tuple[str, Phrases]:
    """Return a language and its phrases: the sponsor's choice, else the first that the browser accepts."""
    wanted = [chosen, *(name for name, _ in parse_accept_lang_header(accepted[:500]))]
    found = next((name[:2] for name in wanted if name[:2] in LANGUAGES), "en")
    return found, LANGUAGES[found]
