"""Bounces of servers that speak another language than English, without a code that says more than "failed"."""

import pytest

from campaigns.audience.bounces.kinds import classify_bounce
from campaigns.engine.message_events import Kind
from vendors.causes import AnswerCause, judge_reply
from vendors.causes.gone import says_unknown

GONE = """
de|550 Empfänger unbekannt
de|550 Unbekannter Empfänger
de|550 Benutzer unbekannt
de|550 Dieser Benutzer existiert nicht
de|550 Die Mailbox existiert nicht
de|550 Das Postfach existiert nicht
de|550 Postfach nicht gefunden
de|550 Die angegebene E-Mail-Adresse existiert nicht
de|550 Empfängeradresse nicht vorhanden
de|553 Unbekannte Empfängeradresse
fr|550 Utilisateur inconnu
fr|550 Destinataire inconnu
fr|550 L'utilisateur n'existe pas
fr|550 La boîte aux lettres n'existe pas
fr|550 Boîte aux lettres inexistante
fr|550 Adresse inconnue
fr|550 Destinataire introuvable
es|550 El usuario no existe
es|550 Usuario desconocido
es|550 Destinatario desconocido
es|550 El buzón no existe
es|550 No existe el usuario
es|550 Buzón inexistente
es|550 No se encontró el destinatario
es|550 La dirección de correo no existe
it|550 Utente sconosciuto
it|550 Destinatario sconosciuto
it|550 La casella non esiste
it|550 Casella inesistente
it|550 L'utente non esiste
it|550 Indirizzo inesistente
pt|550 Usuário desconhecido
pt|550 Usuário inexistente
pt|550 A caixa postal não existe
pt|550 Destinatário não encontrado
pt|550 Utilizador desconhecido
pt|550 Endereço inexistente
pl|550 Nieznany użytkownik
pl|550 Użytkownik nie istnieje
pl|550 Skrzynka nie istnieje
pl|550 Nie ma takiego użytkownika
pl|550 Nieznany odbiorca
pl|550 Adresat nieznany
ru|550 Пользователь не найден
ru|550 Получатель не существует
ru|550 Почтовый ящик не существует
ru|550 Нет такого пользователя
ru|550 Неизвестный получатель
ru|550 Такого пользователя нет
nl|550 Onbekende gebruiker
nl|550 Gebruiker onbekend
nl|550 De gebruiker bestaat niet
nl|550 Onbekende ontvanger
nl|550 Mailbox bestaat niet
nl|550 Adres bestaat niet
sv|550 Okänd användare
sv|550 Användaren finns inte
sv|550 Mottagaren finns inte
sv|550 Okänd mottagare
sv|550 Adressen finns inte
da|550 Ukendt bruger
da|550 Brugeren findes ikke
da|550 Modtageren findes ikke
da|550 Ukendt modtager
da|550 Postkassen findes ikke
no|550 Ukjent bruker
no|550 Brukeren finnes ikke
no|550 Mottakeren finnes ikke
fi|550 Tuntematon käyttäjä
fi|550 Vastaanottajaa ei löydy
fi|550 Käyttäjää ei ole olemassa
cs|550 Uživatel neexistuje
cs|550 Neznámý uživatel
cs|550 Schránka neexistuje
cs|550 Příjemce neexistuje
sk|550 Používateľ neexistuje
sk|550 Neznámy príjemca
hu|550 Ismeretlen felhasználó
hu|550 A felhasználó nem létezik
hu|550 Ismeretlen címzett
hu|550 A postafiók nem létezik
tr|550 Kullanıcı bulunamadı
tr|550 Böyle bir kullanıcı yok
tr|550 Alıcı bulunamadı
tr|550 Bilinmeyen kullanıcı
ja|550 宛先不明
ja|550 ユーザーが見つかりません
ja|550 宛先のメールボックスは存在しません
ja|550 受信者が見つかりません
ja|550 ユーザが存在しません
zh|550 用户不存在
zh|550 收件人不存在
zh|550 邮箱不存在
zh|550 找不到收件人
zh|550 無此使用者
zh|550 收件人地址不存在
ko|550 사용자를 찾을 수 없습니다
ko|550 존재하지 않는 사용자입니다
ko|550 수신자가 존재하지 않습니다
uk|550 Користувача не знайдено
uk|550 Поштова скринька не існує
uk|550 Невідомий одержувач
el|550 Ο χρήστης δεν υπάρχει
el|550 Άγνωστος παραλήπτης
ro|550 Utilizator necunoscut
ro|550 Utilizatorul nu există
ro|550 Destinatar necunoscut
hr|550 Korisnik ne postoji
hr|550 Nepoznat korisnik
he|550 המשתמש לא קיים
ar|550 المستخدم غير موجود
vi|550 Người dùng không tồn tại
id|550 Pengguna tidak ditemukan
"""
NOT_GONE = """
de|550 Das Postfach ist voll
de|552 Speicherplatz des Empfängers überschritten
de|550 Absender unbekannt
de|550 Absenderadresse existiert nicht
de|550 Die Domain des Absenders existiert nicht
de|550 Ihre IP-Adresse ist gesperrt
de|450 Empfänger unbekannt
de|550 Empfänger nimmt zur Zeit keine Nachrichten an
de|550 Nachricht als Spam abgelehnt
de|550 Anhang nicht gefunden
fr|550 Expéditeur inconnu
fr|550 La boîte aux lettres est pleine
fr|550 Votre adresse IP est inconnue
fr|550 Message refusé pour spam
fr|550 Domaine de l'expéditeur inexistant
es|550 Remitente desconocido
es|550 El buzón está lleno
es|550 El dominio del remitente no existe
es|550 Su IP está bloqueada
it|550 Mittente sconosciuto
it|550 La casella è piena
it|550 Dominio del mittente inesistente
pt|550 Remetente desconhecido
pt|550 A caixa postal está cheia
pl|550 Nieznany nadawca
pl|550 Skrzynka jest pełna
pl|550 Domena nadawcy nie istnieje
ru|550 Неизвестный отправитель
ru|550 Почтовый ящик переполнен
ru|550 Домен отправителя не существует
nl|550 Onbekende afzender
nl|550 De mailbox is vol
sv|550 Okänd avsändare
sv|550 Brevlådan är full
da|550 Ukendt afsender
da|550 Postkassen er fuld
no|550 Ukjent avsender
fi|550 Tuntematon lähettäjä
cs|550 Neznámý odesílatel
cs|550 Schránka je plná
hu|550 Ismeretlen feladó
hu|550 A postafiók megtelt
tr|550 Gönderen bulunamadı
tr|550 Posta kutusu dolu
ja|550 送信元不明
ja|550 メールボックスがいっぱいです
zh|550 发件人不存在
zh|550 邮箱已满
ko|550 발신자를 찾을 수 없습니다
ko|550 메일함이 가득 찼습니다
uk|550 Відправник не знайдено
ro|550 Expeditor necunoscut
el|550 Άγνωστος αποστολέας
de|550 Empfänger unbekannt, versuchen Sie es später erneut
de|451 Benutzer unbekannt
fr|550 Utilisateur inconnu de l'expéditeur
de|550 Empfänger unbekannt. Bitte versuchen Sie es später erneut.
de|550 Benutzer unbekannt. Postfach ist voll
de|550 Das Postfach ist voll. Benutzer unbekannt
de|550 Empfänger unbekannt. Absender gesperrt
fr|550 Utilisateur inconnu; réessayez plus tard
es|550 Usuario desconocido - inténtelo más tarde
es|550 Buzón lleno. Usuario no encontrado
ru|550 Получатель неизвестен. Попробуйте позже
zh|550 用户不存在。请稍后再试
"""


def lines(table: str) -> list[str]:
    return [line.partition("|")[2] for line in table.split("\n") if line]


@pytest.mark.parametrize("text", lines(GONE))
def test_a_server_that_knows_no_such_mailbox_is_understood(text: str) -> None:
    judged = classify_bounce("", text)
    assert judged.kind == Kind.HARD_BOUNCE
    assert classify_bounce("5.0.0", text.partition(" ")[2]).kind == Kind.HARD_BOUNCE, "beside a code that says little"
    assert judge_reply(int(text[:3]), text, "").cause in (AnswerCause.RECIPIENT, AnswerCause.UNKNOWN)
    assert says_unknown(text.partition(" ")[2]) is None, "of a service it may be our own user"


@pytest.mark.parametrize("text", lines(NOT_GONE))
def test_a_full_mailbox_an_unknown_sender_and_what_is_for_a_while_is_no_hard_bounce(text: str) -> None:
    assert classify_bounce("", text).kind != Kind.HARD_BOUNCE
