"""A text is a stop if it is surely one; whatever a recipient wrote else is read by a person."""

import io
import json
import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from campaigns.audience import unread_answers
from campaigns.audience.answers import inbox
from campaigns.audience.answers.inbox import NewAnswer
from campaigns.audience.answers.judgement import MOST, answer_itself, expand_alternatives, judge_answer
from campaigns.integrations.webhooks import events
from campaigns.models import InboundMessage, RecipientAnswer, Suppression, WebhookCall
from tests import factories
from vendors.history import Actor
from vendors.models import Vendor

ANN = Actor("ann")
WRITER = "+447700900123"

SURE = [
    *("stop please", "Please stop.", "STOP texting me", "stop thanks", "Stop Stop", "STOP!!!", "stop now", "ok, stop"),
    *("Remove me", "remove me from your list please", "unsub", "Please unsubscribe me", "Take me off your list!"),
    *("leave me alone", "Don't text me", "No more messages please", "opt me out", "unsuscribe", "Opt-Out", "ＳＴＯＰ"),
    *("alto", "ALTO por favor", "baja", "Quiero darme de baja", "parar", "no más mensajes", "no me escriban más"),
    *("Bitte keine SMS mehr", "Abmelden", "bitte abbestellen, danke", "Stopp bitte", "Hör auf", "nichts mehr senden"),
    *("arrêtez svp", "ARRÊT", "désabonnez-moi", "Plus de SMS, merci", "s'il vous plaît arrêtez"),
    *("basta grazie", "cancellatemi", "parem, por favor", "descadastrar", "afmelden aub", "stoppen graag"),
    *("wypisz mnie proszę", "avregistrera tack", "İPTAL", "стоп, пожалуйста", "отпишите меня", "توقف", "रोको", "退订"),
    *("unsubscribe from all emails", "I'd like to unsubscribe, thanks", "Stop these messages please"),
    *("Ich möchte keine SMS mehr erhalten", "Bitte aus dem Verteiler löschen", "Bitte löschen Sie meine Nummer"),
    *(
        "Je souhaite me désinscrire",
        "ik wil me afmelden",
        "Afmeld mig, tak",
        "meld meg av",
        "lopeta",
        "odhlásit, prosím",
    ),
    *("I no longer wish to receive these emails", "I don't want to get your texts, thanks", "I want to be removed"),
    *("I'd like to be taken off your list", "Unsubscribe me from everything", "I do not want any more messages"),
    *("Melden Sie mich bitte ab", "Ich möchte mich vom Newsletter abmelden", "Bitte aus Verteiler entfernen"),
    *(
        "Bitte senden Sie mir keine E-Mails mehr",
        "Bitte streichen Sie mich von der Liste",
        "Newsletter bitte abbestellen",
    ),
    *("Hören Sie auf, mir zu schreiben!", "Bitte keine E-Mails mehr senden", "Merci de me désinscrire", "Annuler"),
    *("Ne m'envoyez plus de messages", "Je ne veux plus recevoir vos mails", "Quiero cancelar la suscripción"),
    *("No deseo recibir más correos", "Cancellatemi dalla lista", "Non voglio più ricevere email"),
    *(
        "STOP, thank you very much",
        "please remove my number from your list",
        "stop2end",
        "Arrêtez de m'envoyer des SMS",
    ),
    *("basta messaggi, grazie mille", "Sluta skicka sms, tack", "avslutt", "proszę nie pisać", "zrušit", "Állj!"),
    *("proszę o usunięcie mojego numeru", "Kérem, ne küldjenek több üzenetet", "oprire vă rog", "תסירו אותי בבקשה"),
    *("не присылайте мне больше СМС, пожалуйста", "відписатися, дякую", "стоп, будь ласка", "отпиши ме, моля"),
    *("odjavi me, molim", "odjava", "одјава", "odstranite me, prosim", "odhláste ma, prosím", "διαγραφή παρακαλώ"),
    *("tolong berhenti berlangganan", "hentikan", "peata", "eemaldage mind palun", "atteikties, lūdzu", "atsisakau"),
    *("不要再发了，谢谢", "停止してください", "중단해 주세요", "stop karo", "từ chối", "baixa, si us plau", "prou"),
    *("Não quero receber mais mensagens", "Verwijder mij van de lijst", "ยกเลิก", "hủy đăng ký"),
    *("RET", "수신거부", "הסר", "leiratkozás", "dezabonare", "拒收", "stoppa"),
    *(
        "STOP\nSent from my iPhone",
        "Stop please\n-- \nAnna",
        "stop\nVon meinem iPhone gesendet",
        "Alto\n\nEnviado desde mi",
    ),
    *(
        "Stop\n\nAnn Miller",
        "STOP.\n\nAnn",
        "Please unsubscribe me\n\nThanks,\nDr. Ann O'Neill-Miller",
        "stop\n\nANN MILLER",
    ),
    *("Bitte abmelden\n\nMit freundlichen Grüßen\n\nJörg Müller", "stop\n\nAnn Miller\nAcme & Sons Ltd."),
    *("请停止", "退订谢谢", "配信停止してほしい", "もう送らないで", "回复TD", "수신거부 부탁드립니다", "거부합니다"),
    *("Abmeldung Newsletter", "non mandatemi più sms", "proszę o wypisanie", "afmelding", "durdurun", "unsub me"),
    *("take me off of your list", "Stop texting this number", "Please remove from mailing list"),
    *(
        "Please unsubscribe me.\n\nKind regards\nAnn Miller",
        "Bitte abmelden\n\nBeste Grüße\nAnn",
        "Graag uitschrijven\n\nMet vriendelijke groet,\nAnn de Vries",
        "Cancellatemi dalla lista.\n\nCordiali saluti\nAnna",
    ),
    "Stop\n\nAnn van der Berg",
    "Stop\n\nAnn Miller\n\nOn Mon, 4 May 2026 at 10:00, Velma <v@velma.example> wrote:\n> Dear Ann",
    "Please remove me from this list.\n\nOn Mon, 4 May 2026 at 10:00, Velma <v@velma.example>\nwrote:\n> Dear Ann",
    "Stop\n\nOn Mon, 4 May 2026 at 10:00, Velma wrote:\n> Dear Ann, click here to\nread on\n> Velma",
    "stop\n\n-----Original Message-----\nFrom: Velma\nSubject: News",
    "Arrêtez\n\nLe lun. 4 mai 2026 à 10:00, Velma <v@velma.example> a écrit :\n> Bonjour",
]
NEAR = [
    "Am 04.05.2026 um 10:00 schrieb Velma <v@velma.example>:\n> Liebe Ann\n> Ihr Angebot\n\nBitte abmelden",
    "Thanks!\n> To end this, click here to\nunsubscribe\n> Velma",
    *(
        "Stop?",
        "unsub ?!",
        "STOP？",
        "s t o p",
        "S.T.O.P",
        "Please s-t-o-p.",
        "stopppp",
        "STOP123",
        "ѕtop",
        "ЅТОР",
        "stοp",
    ),
    *("Stop it", "please don't stop", "I cannot stop", "stops", "Non-stop fun!", "can you stop by at 5?", "🛑", "stpo"),
    *(
        "I am not interested",
        "wrong number",
        "Who is this?",
        "I withdraw my consent",
        "cancel my order",
        "Cancel please",
    ),
    *("Bitte nicht stoppen", "Kein Interesse", "Ich widerrufe meine Einwilligung", "falsche Nummer"),
    *("No quiero nada", "número equivocado", "nee bedankt", "red", "fine", "Stop.\nAnna Smith", "<b>stop</b>"),
    *(
        "I don't want any",
        "I don't want to unsubscribe",
        "Ich möchte keine SMS mehr, nur E-Mails",
        "be removed from row 2",
    ),
    *(
        "I no longer wish to receive texts at work",
        "I do not want these dates",
        "No quiero más",
        "Je ne veux plus de pain",
    ),
    *("No thanks", "lose my number", "no molestar", "не надо", "I'm unsubscribing", "不要停止", "停止しないで"),
    *("请取消订单", "ne pišite", "unerwünscht"),
    *("zrezygnuj", "avmelda", "отказ", "解約", "huỷ", "हटाओ", "seis"),
    *("Stop\n\nThe War", "Stop\n\nNot Yet", "Stop\n\nDO NOT", "stop\n\nBut Not Me", "Stop\n\nat Baker Street"),
    *("Stop\n\nJust Kidding", "Stop\n\nAnn Miller wants more", "Stop\n\nBitte Nicht", "Please do not stop\n\nAnn"),
    *("Stop\n\nCall 0171 1234567", "Stop\n\nAnn\nBob\nCyd\nDan", "Stop?\n\nAnn Miller"),
    "Stop\n\nAnn Miller?",
    *("не спри", "ne odjavite me", "jangan berhenti berlangganan", "μη σταματήστε", "neodhlasujte ma, odhlásiť nie"),
]
OTHER = [
    "",
    "Hello",
    "Yes, at 5",
    "Thank you so much",
    "...",
    "a b c",
    "Really?",
    "Thanks!\n> Reply STOP to opt out",
    "42",
    "OK",
    "谢谢",
    "止まらない",
    "en fin",
]


@pytest.mark.parametrize(("texts", "judged"), [(SURE, "stop"), (NEAR, "near"), (OTHER, "other")])
def test_a_text_is_judged(texts: list[str], judged: str) -> None:
    assert {text: judge_answer(text) for text in texts} == dict.fromkeys(texts, judged)


def test_each_word_of_the_table_that_asks_is_sure_alone_and_none_is_a_filler() -> None:
    from campaigns.audience.answers.judgement import answer_phrases

    for language in answer_phrases().languages:
        assert not (language.whole | language.stop) & language.fillers
        for phrase in language.whole | language.stop:
            assert judge_answer(" ".join(phrase)) == "stop"


def test_alternatives_of_a_phrase_are_phrases_of_their_own() -> None:
    assert list(expand_alternatives("no (more|) (mails|texts) now")) == [
        "no more mails now", "no more texts now", "no  mails now", "no  texts now"
    ]  # fmt: skip
    assert list(expand_alternatives("stop")) == ["stop"]


def test_what_an_identity_has_of_its_own_is_sure_as_a_whole_only() -> None:
    assert (
        judge_answer("Schnauze!", ["schnauze"]) == "stop" and judge_answer("Halt die Schnauze", ["schnauze"]) == "other"
    )
    assert judge_answer("Schnauze?", ["schnauze"]) == "near"


def test_a_text_of_any_length_is_read_up_to_a_bound() -> None:
    assert judge_answer("word " * MOST + "stop") == "other"
    assert answer_itself("on a:\n" * MOST) is not None and judge_answer("stop " * MOST) == "near"


def kept(number: int = 1, understood: Any = "near", **more: Any) -> RecipientAnswer:
    """An answer in a sponsor's inbox."""
    sponsor = more.pop("sponsor", None) or factories.sponsor()
    facts: dict[str, Any] = {
        "kind": RecipientAnswer.Kind.SMS, "channel": "sms", "sender": WRITER, "to": "+1500", "text": "No, stop it",
    }  # fmt: skip
    inbox.take_answer(NewAnswer(f"sms {number}", understood=understood, sponsor_id=sponsor.pk, **(facts | more)))
    return RecipientAnswer.objects.get(name=f"sms {number}")


def suppressed() -> set[tuple[Any, str | None, str]]:
    return set(Suppression.objects.values_list("sponsor", "address", "reason"))


@pytest.mark.django_db
class TestInbox:
    def test_an_answer_is_kept_once_and_its_text_is_bounded(self) -> None:
        row = kept(text="x" * 5_000)
        inbox.take_answer(NewAnswer("sms 1", row.Kind.SMS, "sms", "near", WRITER, "", "again", row.sponsor_id))
        row = RecipientAnswer.objects.get()
        assert len(row.text) == inbox.MOST_TEXT and row.text.endswith("x…") and row.near

    def test_what_was_done_and_what_is_blank_is_not_kept_to_be_read(self) -> None:
        sponsor = factories.sponsor()
        for number, (understood, text) in enumerate((("stop", "STOP"), ("help", "?"), ("other", " \n"))):
            new = NewAnswer(f"sms {number}", RecipientAnswer.Kind.SMS, "sms", understood, WRITER, "", text, sponsor.pk)  # type: ignore[arg-type]
            assert inbox.take_answer(new) == []
        assert not RecipientAnswer.objects.exists()

    def test_treated_as_a_stop_it_suppresses_once_and_is_recorded(self) -> None:
        row = kept()
        assert unread_answers.treat_as_stop(row.pk, ANN) and not unread_answers.treat_as_stop(row.pk, Actor("bob"))
        assert suppressed() == {(row.sponsor_id, WRITER, "stop")}
        assert Suppression.objects.get().source == f"answer {row.pk}, by ann"
        row.refresh_from_db()
        assert (row.outcome, row.decided_by) == ("stop", "ann")
        assert LogEntry.objects.get().change_message == "treated as stop by ann"

    def test_one_that_was_read_may_still_be_a_stop_and_not_the_other_way_round(self) -> None:
        row = kept()
        assert unread_answers.mark_read(row.pk, ANN) and not unread_answers.mark_read(row.pk, Actor("bob"))
        assert suppressed() == set()
        assert unread_answers.treat_as_stop(row.pk, Actor("bob")) and not unread_answers.mark_read(row.pk, ANN)
        row.refresh_from_db()
        assert (row.outcome, row.decided_by) == ("stop", "bob")

    def test_an_answer_to_a_number_of_nobody_stops_all_whom_it_concerns(self) -> None:
        sponsors = [factories.sponsor().pk for _ in range(2)]
        factories.sponsor()
        new = NewAnswer("sms 1", RecipientAnswer.Kind.SMS, "sms", "near", WRITER, "", "no", None, sponsors)
        assert inbox.take_answer(new) == []
        unread_answers.treat_as_stop(RecipientAnswer.objects.get().pk, ANN)
        assert suppressed() == {(one, WRITER, "stop") for one in sponsors}

    def test_sponsors_that_are_gone_are_passed_over(self) -> None:
        left, gone = factories.sponsor(), factories.sponsor()
        new = NewAnswer("sms 1", RecipientAnswer.Kind.SMS, "sms", "near", WRITER, "", "no", None, [left.pk, gone.pk])
        inbox.take_answer(new)
        gone.delete()
        assert unread_answers.treat_as_stop(RecipientAnswer.objects.get().pk, ANN)
        connection.check_constraints()
        assert suppressed() == {(left.pk, WRITER, "stop")}

    def test_who_has_written_start_since_is_not_stopped(self) -> None:
        vendor = factories.vendor(channel="sms")
        row = kept(vendor_id=vendor.pk)
        later = {"vendor": vendor, "sponsor": row.sponsor, "to": row.to, "text": "START", "command": "start"}
        InboundMessage.objects.create(
            name="a", sender=row.sender, written_at=timezone.now() + timedelta(minutes=1), **later
        )
        with pytest.raises(unread_answers.StartedSince):
            unread_answers.treat_as_stop(row.pk, ANN)
        assert suppressed() == set() and not LogEntry.objects.exists()
        row.refresh_from_db()
        assert row.outcome == ""

    def test_an_email_is_suppressed_as_unsubscribed(self) -> None:
        row = kept(channel="email", kind=RecipientAnswer.Kind.REPLY, sender="ann@example.org")
        unread_answers.treat_as_stop(row.pk, ANN)
        assert suppressed() == {(row.sponsor_id, "ann@example.org", "unsubscribed")}

    def test_it_is_deleted_after_event_days_with_the_events_about_it(self, settings: Any) -> None:
        settings.EVENTS_KEPT = timedelta(days=100)
        sponsor = factories.sponsor()
        events.create_webhook(sponsor, "https://receiver.example/", ["answer.received"], test=False)
        old, new = kept(1, sponsor=sponsor), kept(2, sponsor=sponsor)
        past = timezone.now() - timedelta(days=101)
        RecipientAnswer.objects.filter(pk=old.pk).update(stored_at=past)
        first = WebhookCall.objects.earliest("pk")
        WebhookCall.objects.filter(pk=first.pk).update(created_at=past)
        assert inbox.delete_old_answers() == 2
        assert RecipientAnswer.objects.get() == new and WebhookCall.objects.get().pk != first.pk

    def test_an_alarm_tells_of_what_is_unread_for_a_day(self, caplog: Any) -> None:
        old, young = kept(1), kept(2)
        RecipientAnswer.objects.filter(pk=old.pk).update(stored_at=timezone.now() - timedelta(hours=26))
        with caplog.at_level(logging.WARNING):
            inbox.tell_unread()
            assert "2 answers of recipients are unread, the oldest for 26 hours" in caplog.text
            caplog.clear()
            unread_answers.mark_read(old.pk, ANN)
            inbox.tell_unread()
        assert caplog.text == "" and [one.number for one in inbox.unread_by_channel()] == [1]
        assert young.outcome == ""

    def test_unread_ones_are_counted_by_channel_up_to_a_bound(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(inbox, "MOST_COUNTED", 2)
        rows = [kept(number) for number in range(3)]
        kept(3, channel="email", kind=RecipientAnswer.Kind.REPLY)
        found = {one.channel: (one.number, one.oldest) for one in inbox.unread_by_channel()}
        assert found["sms"] == (2, RecipientAnswer.objects.get(pk=rows[0].pk).stored_at)
        assert found["email"][0] == 1 and inbox.count_unread(None) == 2


@pytest.mark.django_db
class TestWebhook:
    def test_an_answer_is_an_event_of_its_sponsor_once_whatever_was_understood(self) -> None:
        sponsor, other = factories.sponsor(), factories.sponsor()
        mine = events.create_webhook(sponsor, "https://receiver.example/", ["answer.received"], test=False)[0]
        events.create_webhook(sponsor, "https://receiver.example/", ["session.finished"], test=False)
        events.create_webhook(sponsor, "https://receiver.example/", ["answer.received"], test=True)
        events.create_webhook(other, "https://receiver.example/", ["answer.received"], test=False)
        for number, understood in enumerate(("near", "stop")):
            new = NewAnswer(
                f"sms {number}", RecipientAnswer.Kind.SMS, "sms", understood, WRITER, "+1500", "stop it", sponsor.pk  # type: ignore[arg-type]
            )  # fmt: skip
            assert len(inbox.take_answer(new)) == 1
            inbox.take_answer(new)
        calls = list(WebhookCall.objects.order_by("pk"))
        assert [(call.webhook_id, call.kind, call.session_id) for call in calls] == [
            (mine.pk, "answer.received", None)
        ] * 2
        first, second = (json.loads(call.body) for call in calls)
        assert first["type"] == "answer.received" and first["data"]["id"].startswith("ans_")
        assert (first["data"]["understood"], first["data"]["text"]) == ("near", "stop it")
        assert (second["data"]["understood"], second["data"]["id"]) == ("stop", None)
        assert WRITER not in calls[0].body


@pytest.mark.django_db
class TestCommand:
    def output(self, *given: Any, **more: Any) -> str:
        out = io.StringIO()
        call_command("answers", *map(str, given), stdout=out, **more)
        return out.getvalue()

    def test_it_lists_the_unread_ones_the_oldest_first_and_decides(self) -> None:
        sponsor = factories.sponsor("Velma")
        first, second = kept(1, sponsor=sponsor), kept(2, sponsor=sponsor)
        kept(3)
        rows = [json.loads(line) for line in self.output("list", "--sponsor", "Velma", "--json").splitlines()]
        assert [row["id"] for row in rows] == [first.pk, second.pk] and rows[0]["perhaps_stop"] is True
        assert "treated as stop" in self.output("stop", first.pk)
        assert "already so" in self.output("stop", first.pk) and "read" in self.output("read", second.pk)
        assert self.output("list", "--sponsor", "Velma", "--json") == ""
        decided = [json.loads(line)["state"] for line in self.output("list", "--state", "all", "--json").splitlines()]
        assert decided == ["unread", "read", "stop"]

    def test_an_unknown_answer_changes_nothing(self) -> None:
        row = kept()
        with pytest.raises(CommandError, match="there is no answer 0"):
            self.output("stop", row.pk, 0)
        assert suppressed() == set()


@pytest.mark.slow("many")
@pytest.mark.django_db(transaction=True)
def test_two_people_at_once_decide_once() -> None:
    row, found = kept(), list[bool]()

    def press(name: str) -> None:
        try:
            found.append(unread_answers.treat_as_stop(row.pk, Actor(name)))
        finally:
            connection.close()

    threads = [threading.Thread(target=press, args=[name]) for name in ("ann", "bob", "cy", "dee")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(found) == [False, False, False, True]
    assert LogEntry.objects.count() == 1 and Suppression.objects.count() == 1
    assert Suppression.objects.get().channel == Vendor.Channel.SMS
