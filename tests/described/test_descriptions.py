"""A description is read once, and every mistake in it is explained, with its key and line."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.described.calling import send, with_adapter
from tests.described.servers import Answer, Called, VendorServer
from vendors.adapters.base import Attachment, Letter, Origin
from vendors.adapters.options import InvalidSettings
from vendors.adapters.reports import ReportRequest, ReportSource
from vendors.causes import AnswerCause
from vendors.described import positions, reading
from vendors.described.adapter import Described
from vendors.described.reading import InvalidDescription
from vendors.described.reading import read_entered as read
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

GOOD = """[vendor]
name = "Pigeon"
channel = "email"
documents = "https://pigeon.example/docs"

[settings.team]
about = "which team"
default = ""

[secret]
token = "the token of the team"

[request]
url = "https://api.pigeon.example/{settings.team}/letters"

[request.auth]
scheme = "bearer"
token = "{secret.token}"

[request.content]
to = "{recipient}"

[answer]
id = "id"
"""


def faults(source: str) -> dict[str, tuple[int, str]]:
    """By key: the line and the sentence."""
    with pytest.raises(InvalidDescription) as error:
        read(source)
    return {fault.path: (fault.line, fault.sentence) for fault in error.value.faults}


def test_each_shipped_description_is_right() -> None:
    names = reading.list_shipped()
    assert names == ["infobip", "lob", "lob-postcards", "mailgun", "postgrid", "postmark", "twilio", "vonage"]
    for name in names:
        assert read(reading.source_of(name)).keys.vendor.documents.startswith("https://")


def test_what_would_send_nonsense_is_a_mistake() -> None:
    to, each = 'to = "{recipient}"', '{ each = "{headers}", item = { a = "{header.name}" } }'
    nested = GOOD.replace(to, f'{to}\nheaders = [{{ header = "X", value = "y" }}, {each}]')
    assert "a list within the list" in faults(nested)["request.content.headers.1"][1]
    read(GOOD.replace(to, f"{to}\nheaders = {each}"))
    assert "has seconds or a date" in faults(GOOD + 'retry_at = "Retry-After"\n')["answer.retry_at"][1]
    assert "needs is" in faults(GOOD + "[[answer.rules]]\nstatus = 422\n")["answer.rules.0"][1]
    both = '[[answer.rules]]\nstatus = 422\nis = "paused"\ncause = "us"\n'
    assert "goes with" in faults(GOOD + both)["answer.rules.0.cause"][1]


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (Answer(429, {}, {"Reset": "60"}), (60, 60)),
        (Answer(429, {}, {"Reset": str(int(time.time()) + 7200)}), (1, 7200)),
        (Answer(420, {"message": "try again after Mon, 02 Mar 2076 18:00:00 UTC"}), (86_400, 86_400)),
        (Answer(429, {}), (30, 30)),
    ],
)
def test_a_wait_is_read_from_seconds_a_unix_time_or_the_words(answer: Answer, wait: tuple[float, float]) -> None:
    with Pigeon() as vendor:
        vendor.next_answer = answer
        outcome = call(vendor, GOOD + 'retry_at = "Reset"\n', LETTER)
    assert isinstance(outcome, NotSent) and outcome.scope == "credential" and not outcome.pause
    assert outcome.retry_after is not None and wait[0] <= outcome.retry_after <= wait[1]


CAUSES = """
code = "code"
[answer.causes]
17 = "us"
18 = "capacity"
19 = "recipient"
20 = "content"
[[answer.rules]]
status = 422
body.code = [21]
cause = "us"
[[answer.rules]]
status = 200
body.code = [22]
is = "refused"
cause = "capacity"
contract = "https://pigeon.example/docs#errors"
"""


@pytest.mark.parametrize(
    ("answer", "expected", "cause"),
    [
        (Answer(422, {"code": 17}), NotSent("http 422: 17", scope="credential", pause=True), AnswerCause.US),
        (
            Answer(422, {"code": 18}, {"Retry-After": "7"}),
            NotSent("http 422: 18", 7.0, "credential"),
            AnswerCause.CAPACITY,
        ),
        (Answer(422, {"code": 19}), Refused("19"), AnswerCause.RECIPIENT),
        (Answer(422, {"code": 20}), Refused("20"), AnswerCause.CONTENT),
        (Answer(422, {"code": 21}), NotSent("http 422: 21", scope="credential", pause=True), AnswerCause.US),
        (Answer(200, {"id": "a", "code": 22}), NotSent("http 200: 22", 30.0, "credential"), AnswerCause.CAPACITY),
        (Answer(500, {"code": 19}), InDoubt("http 500"), None),
        (Answer(422, {"code": "unknown_recipient"}), Refused("unknown_recipient"), AnswerCause.RECIPIENT),
    ],
)
def test_a_description_names_causes_and_what_follows_is_the_common_table(
    answer: Answer, expected: Outcome, cause: AnswerCause | None
) -> None:
    with Pigeon() as vendor:
        vendor.next_answer = answer
        outcome = call(vendor, GOOD + CAUSES, LETTER)
    assert outcome == expected and getattr(outcome, "cause", None) == cause


def test_all_mistakes_are_told_at_once_each_with_its_line() -> None:
    wrong = (
        GOOD.replace('"email"', '"fax"')
        .replace('name = "Pigeon"', 'nam = "Pigeon"')
        .replace("{settings.team}", "{settings.taem}")
        .replace('token = "{secret.token}"', 'token = "{secret.key}"')
        .replace('to = "{recipient}"', 'to = "{recipent}"\nbrace = "{a"\nwhen = 1979-05-27\n'
                 'list = [\n  1,\n  "{x}",\n]')
        .replace('id = "id"', 'id = ".."\n[[answer.rules]]\nstatus = "9xx"\nis = "gone"\n[[answer.rules]]\n'
                 'status = [400, 500]\nis = "refused"')
    )  # fmt: skip
    found = faults(wrong)
    assert {path: line for path, (line, _) in found.items()} == {
        "vendor.nam": 2,
        "vendor.name": 1,
        "vendor.channel": 3,
        "secret.token": 11,
        "request.url": 14,
        "request.auth.token": 18,
        "request.content.to": 21,
        "request.content.brace": 22,
        "request.content.when": 23,
        "request.content.list.1": 24,
        "answer.id": 30,
        "answer.rules.0.status": 32,
        "answer.rules.0.is": 33,
        "answer.rules.1.is": 36,
    }
    assert found["request.url"][1] == "{settings.taem} is not in [settings], where there are: team"
    assert "says more than http 500 proves" in found["answer.rules.1.is"][1]
    assert "recipient" in found["request.content.to"][1]


@pytest.mark.parametrize(
    ("source", "line", "sentence"),
    [
        ("a = [\n1,\n\n", 4, "this is not TOML"),
        ("a = 1\n\na = 2", 3, "this is not TOML"),
        ("[" * 3000, 1, "this is not TOML"),
        ("# " + "x" * 70_000, 1, "it is longer than 65,536 characters"),
        ("", 1, "is missing"),
    ],
)
def test_what_is_no_description_at_all_is_told_too(source: str, line: int, sentence: str) -> None:
    with pytest.raises(InvalidDescription) as error:
        read(source)
    assert error.value.faults[0].line == line and sentence in error.value.faults[0].sentence


@pytest.mark.parametrize(
    "text",
    [
        'token = "0123456789abcdef0123456789abcdef"',
        'token = "Bearer sk_live_51HxYzAbCdEfGh"',
        'token = "hunter2-hunter2"',
        'token = "{secret.token}"\n[request.headers]\nX-Api-Key = "4f6a8b1c9d2e3f40"',
        'token = "{secret.token}"\n[request.headers]\nX = "-----BEGIN PRIVATE KEY-----"',
        'token = "{secret.token}"\n[request.headers]\nX = "key-3ax6xnjp29jd6fds4gc373sgvjxteol0"',
    ],
)
def test_a_file_with_what_looks_like_a_secret_is_refused_and_it_is_not_shown(text: str) -> None:
    with pytest.raises(InvalidDescription) as error:
        read(GOOD.replace('token = "{secret.token}"', text))
    assert "secret" in str(error.value)
    assert not any(part in str(error.value) for part in ("0123", "51Hx", "hunter2", "4f6a", "BEGIN", "3ax6"))


@pytest.mark.parametrize(
    ("status", "meaning", "lawful"),
    [
        ('"2xx"', "in doubt", True), ('"4xx"', "in doubt", True), ("422", "paused", True), ("422", "not sent", True),
        ("422", "throttled", True), ("429", "paused", True), ("404", "paused", True),
        ("200", "refused", False), ("200", "not sent", False), ("500", "not sent", False), ("503", "throttled", False),
        ("401", "refused", False), ("404", "refused", False), ("429", "refused", False), ("409", "accepted", False),
        ("408", "refused", False), ("302", "not sent", False), ("429", "not sent", False), ("401", "throttled", False),
    ],
)  # fmt: skip
def test_a_rule_says_no_more_than_the_answer_proves_unless_it_names_the_contract(
    status: str, meaning: str, lawful: bool
) -> None:
    rule = f'\n[[answer.rules]]\nstatus = {status}\nis = "{meaning}"\n'
    if lawful:
        read(GOOD + rule)
    else:
        assert "contract" in faults(GOOD + rule)["answer.rules.0.is"][1]
    read(GOOD + rule + 'contract = "https://pigeon.example/docs#errors"\n')


def test_what_belongs_together_is_held_together() -> None:
    more = """batch_in = "letters"
[dedupe]
contract = "https://pigeon.example/docs"
[lookup]
url = "https://api.pigeon.example/letters"
id = "id"
reference = "key"
proves = "both"
"""
    found = faults(GOOD.replace('scheme = "bearer"', 'scheme = "basic"') + more)
    assert found.keys() == {
        "answer.batch_in", "dedupe", "lookup.url", "lookup.proves", "request.auth", "request.auth.token"
    }  # fmt: skip


class Pigeon(VendorServer):
    """Takes everything."""

    def answer(self, called: Called) -> Answer:
        return Answer(200, {"id": f"p-{len(self.calls)}"})


def call(vendor: VendorServer, source: str, letter: Letter, **settings: Any) -> Outcome:
    [outcome] = send({"description": source, "server": vendor.url, **settings}, {"token": "s3cr3t"}, letter)
    return outcome


LETTER = Letter("ref-1", "zoë@example.com", 'Say "hi"\n', "Dear\tZoë \U0001f44d", {"street": "1 Main", "no": 7})


def content(text: str, body: str = "json") -> str:
    return GOOD.replace('to = "{recipient}"', text).replace("[request.auth]", f'body = "{body}"\n[request.auth]')


def test_a_body_of_json_is_made_of_the_letters_parts() -> None:
    source = content(
        'text = "Dear {recipient}: {subject}!"\n"a b" = "{{{params.street}}}"\nno = "{params.no}"\nall = "{params}"\n'
        'gone = "{params.nothing?}"\nteam = "{settings.team?}"\nfixed = [1, true, 2.5, "x", ["{reference}"]]\n'
        'only = { a = "{params.nothing?}", b = "{params.street?}" }\nempty = {}\nhtml = "{html?}"\n'
        'from = "{from?}"\nfiles = { each = "{files?}", item = { n = "{file.name}", c = "{file.base64}" } }\n'
        'headers = { each = "{headers}", item = { k = "{header.name}", v = "{header.value}" } }'
    )
    fine = {
        "text": 'Dear zoë@example.com: Say "hi"\n!', "a b": "{1 Main}", "no": "7", "all": {"street": "1 Main", "no": 7},
        "fixed": [1, True, 2.5, "x", ["ref-1"]], "only": {"b": "1 Main"}, "empty": {}, "headers": [],
    }  # fmt: skip
    with Pigeon() as vendor:
        assert call(vendor, source, LETTER) == Accepted("p-1")
        assert json.loads(vendor.calls[0].body) == fine
        rich = LETTER._replace(
            html=True, headers=[("X-A", 'a"b')], attachments=(Attachment("a.txt", "text/plain", b"abc"),),
            origin=Origin("us@example.com", 'We "us"'),
        )  # fmt: skip
        assert call(vendor, source, rich, team="north") == Accepted("p-2")
        assert vendor.calls[1].path == "/north/letters"
        assert json.loads(vendor.calls[1].body) == fine | {
            "team": "north", "html": LETTER.body, "from": '"We \\"us\\"" <us@example.com>',
            "files": [{"n": "a.txt", "c": "YWJj"}], "headers": [{"k": "X-A", "v": 'a"b'}],
        }  # fmt: skip
        assert vendor.calls[0].headers["authorization"] == "Bearer s3cr3t"


def test_a_body_of_several_parts_carries_files_as_they_are() -> None:
    source = content('to = "{recipient}"\ngone = "{reply_to?}"', "multipart").replace(
        'body = "multipart"', 'body = "multipart"\nfiles = "file"'
    )
    file = Attachment('a"b\r\n.bin', "application/octet-stream", bytes(range(256)))
    with Pigeon() as vendor:
        assert isinstance(call(vendor, source, LETTER._replace(attachments=(file,))), Accepted)
        called = vendor.calls[0]
        boundary = called.headers["content-type"].partition("boundary=")[2].encode()
        first, second, end = called.body.split(b"--" + boundary)[1:]
        assert first == b'\r\nContent-Disposition: form-data; name="to"\r\n\r\n' + "zoë@example.com\r\n".encode()
        head, _, rest = second.partition(b"\r\n\r\n")
        assert b'name="file"; filename="a%22b%0D%0A.bin"' in head
        assert rest == bytes(range(256)) + b"\r\n" and end == b"--\r\n"
        assert Described.carries({"description": source}) == {"attachments"}


def test_addresses_headers_and_queries_are_made_of_the_letters_parts_and_quoted() -> None:
    source = (
        GOOD.replace('scheme = "bearer"\ntoken =', 'scheme = "query"\nname = "key"\nvalue =')
        .replace("/letters", "/to/{recipient}?ref={reference}")
        .replace("[request.content]", '[request.headers]\nX-Ref = "a {reference}"\nX-Team = "{settings.team?}"\n'
                 "[request.content]")
    )  # fmt: skip
    with Pigeon() as vendor:
        assert isinstance(call(vendor, source, LETTER._replace(recipient="a/b ?"), team="north"), Accepted)
        called = vendor.calls[0]
        assert called.path == "/north/to/a%2Fb%20%3F"
        assert called.query == {"ref": ["ref-1"], "key": ["s3cr3t"]}
        assert called.headers["x-ref"] == "a ref-1" and called.headers["x-team"] == "north"
        assert call(vendor, source, LETTER._replace(reference="a\r\nX: y")) == Refused(
            "unsendable", "header: the value of the header X-Ref must be one line of Latin-1"
        )
        assert len(vendor.calls) == 1


def test_a_secret_in_the_query_never_stands_in_the_path() -> None:
    source = GOOD.replace('scheme = "bearer"\ntoken =', 'scheme = "query"\nname = "key"\nvalue =')
    with Pigeon() as vendor:
        assert call(vendor, source.replace("/letters", "/to/{recipient}"), LETTER, team="a") == Accepted("p-1")
        assert vendor.calls[0].path == "/a/to/zo%C3%AB%40example.com" and vendor.calls[0].query == {"key": ["s3cr3t"]}


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_value_that_would_change_the_path_is_not_sent(value: str) -> None:
    letter = LETTER._replace(recipient=value)
    with Pigeon() as vendor:
        outcome = call(vendor, GOOD.replace("/letters", "/to/{recipient}"), letter)
        assert outcome == Refused("unsendable", f"field: '{value}' cannot be a part of the address")
        assert not vendor.calls
        assert call(vendor, GOOD.replace("/letters", "/to?who={recipient}"), letter) == Accepted("p-1")


RULES = """
code = "error.code"
[[answer.rules]]
status = 200
body = { "result.state" = ["ok", 0] }
is = "accepted"
[[answer.rules]]
status = 200
body."result.state" = ["busy"]
is = "throttled"
contract = "https://pigeon.example/docs#busy"
[[answer.rules]]
status = "2xx"
is = "in doubt"
[[answer.rules]]
status = [422]
body."error.code" = [17]
is = "paused"
"""


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(200, {"id": "a", "result": {"state": "ok"}}), Accepted("a")),
        (Answer(200, {"id": "a", "result": {"state": 0}}), Accepted("a")),
        (Answer(200, {"result": {"state": "ok"}}), InDoubt("http 200 without an id")),
        (Answer(200, {"id": "a", "result": {"state": "busy"}}, {"Retry-After": "9"}),
         NotSent("http 200", 9.0, "credential")),
        (Answer(200, {"id": "a"}), InDoubt("http 200")),
        (Answer(200, {"id": "a", "result": [{"state": "ok"}]}), InDoubt("http 200")),
        (Answer(422, {"error": {"code": 17}}), NotSent("http 422: 17", scope="credential", pause=True)),
        (Answer(422, {"error": {"code": "gone"}}), Refused("gone")),
        (Answer(422, {"error": {"code": 17}}, cut=True),
         InDoubt("the vendor closed the connection before the end of its answer")),
        (Answer(429, None, {"Retry-After": "7"}),
         NotSent("http 429: too fast for the vendor", 7.0, "credential")),
    ],
)  # fmt: skip
def test_the_first_rule_that_fits_says_what_an_answer_means(answer: Answer, expected: Outcome) -> None:
    with Pigeon() as vendor:
        vendor.next_answer = answer
        assert call(vendor, GOOD + RULES, LETTER) == expected


def test_an_id_may_be_in_a_header() -> None:
    with Pigeon() as vendor:
        vendor.next_answer = Answer(202, None, {"X-Message-Id": "m-7"})
        assert call(vendor, GOOD.replace('id = "id"', 'id_header = "X-Message-Id"'), LETTER) == Accepted("m-7")


BATCH = GOOD.replace("[request.auth]", 'batch = 3\nbatch_in = "letters"\n[request.auth]') + 'batch_in = "results"\n'


class Batches(Pigeon):
    def answer(self, called: Called) -> Answer:
        letters = json.loads(called.body)["letters"]
        return Answer(200, {"results": [{"id": one["to"]} if "@" in one["to"] else {} for one in letters]})


def test_a_batch_is_one_call_and_each_letter_has_its_own_outcome() -> None:
    source = BATCH.replace('to = "{recipient}"', 'to = "{recipient}"\nstreet = "{params.street}"')
    letters = [LETTER, LETTER._replace(params={}), LETTER._replace(recipient="nobody")]

    async def story(adapter: Described) -> None:
        assert adapter.capabilities.batch_max == 3
        assert await adapter.send(letters) == [
            Accepted("zoë@example.com"),
            Refused("unsendable", "field: the field street is missing"),
            InDoubt("http 200 without an id"),
        ]
        assert len(vendor.calls) == 1
        vendor.next_answer = Answer(200, {"results": []})
        assert {type(one) for one in await adapter.send([LETTER, LETTER])} == {InDoubt}
        vendor.next_answer = Answer(422, {"code": "bad"})
        outcomes = await adapter.send([LETTER, LETTER])
        assert outcomes == [InDoubt("http 422 for a whole batch: bad", pause=True)] * 2
        vendor.next_answer = Answer(422, {"code": "bad"}, cut=True)
        assert {type(one) for one in await adapter.send([LETTER, LETTER])} == {InDoubt}

    with Batches() as vendor:
        with_adapter({"description": source, "server": vendor.url}, {"token": "t"}, story)


def test_mistakes_in_a_form_for_several_letters_are_told() -> None:
    shared = """
[request.recipients]
to = "to"
variables = "vars"
variable = "%recipient%"
own = ["to", "nothing"]
"""
    form = GOOD.replace("[request.auth]", 'body = "form"\nbatch = 3\ninline = "i"\n[request.auth]') + shared
    assert {path: sentence[:20] for path, (_, sentence) in faults(form).items()} == {
        "request.inline": "is for images beside",
        "request.recipients.variable": "has not the right fo",
        "request.recipients.own": "names nothing, which",
        "request.recipients.to": "is written by mailhu",
        "answer": "needs one_id = true:",
    }
    assert faults(GOOD + shared.replace("%recipient%", "%NAME%").replace('"to", "nothing"', "")).keys() == {
        "request.recipients", "request.recipients.to",
    }  # fmt: skip


@pytest.mark.parametrize(("meaning", "status"), [("paused", 422), ("refused", 422), ("not sent", 402)])
def test_an_error_for_a_batch_proves_that_none_was_taken_only_by_a_contract(meaning: str, status: int) -> None:
    rule = f'[[answer.rules]]\nstatus = {status}\nis = "{meaning}"\n'
    promise = 'contract = "https://pigeon.example/docs#all-or-nothing"\n'
    with Batches() as vendor:
        for source in (BATCH + rule + promise, *([] if meaning == "not sent" else [BATCH + rule])):

            async def story(adapter: Described) -> list[Outcome]:
                vendor.next_answer = Answer(status, {"code": "bad"})
                return await adapter.send([LETTER, LETTER])

            outcomes = with_adapter({"description": source, "server": vendor.url}, {"token": "t"}, story)
            expected = (NotSent, meaning != "not sent") if promise in source else (InDoubt, True)
            assert [(type(one), one.pause) for one in outcomes] == [expected] * 2


def test_the_secret_belongs_to_the_destination_and_to_the_descriptions_own_names() -> None:
    same = GOOD.replace("which team", "the team")
    elsewhere = GOOD.replace("api.pigeon.example", "api.hawk.example")
    where = Described.destination({"description": GOOD, "team": "a"})
    assert Described.destination({"description": same, "team": "a"}) == where
    assert Described.destination({"description": same, "team": "b"}) != where
    assert Described.destination({"description": elsewhere, "team": "a"}) != where
    with pytest.raises(InvalidSettings, match="the secret must hold token"):
        Described({"description": GOOD}, {"tocken": "x"})


def test_a_description_says_what_it_carries_and_whether_it_needs_a_sender() -> None:
    rich = content('t = "{text}"\nh = { each = "{headers}", item = "{header.name}" }\nf = "{from.address}"')
    assert Described.carries({"description": rich}) == {"text", "headers"}
    assert Described.asks_origin({"description": rich}) is True
    assert Described.asks_origin({"description": GOOD}) is False
    with Pigeon() as vendor:
        assert call(vendor, rich, LETTER) == Refused("unsendable", "sender: it has no sender identity")


@pytest.mark.parametrize("token", ["line\r\nX: y", "жetон", "a\0b"])
def test_a_secret_that_no_header_can_carry_is_told_when_it_is_entered_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        Described({"description": GOOD}, {"token": token})
    assert "Authorization" in str(error.value) and token not in str(error.value)


def test_a_setting_that_no_header_can_carry_is_told_when_it_is_entered() -> None:
    source = GOOD.replace("[request.content]", '[request.headers]\nX-Team = "{settings.team}"\n[request.content]')
    with pytest.raises(InvalidSettings, match="X-Team"):
        Described({"description": source, "team": "ж"}, {})


def test_a_stored_description_that_would_no_longer_be_taken_is_used_as_before() -> None:
    """An upgrade that lets less pass stops nobody: who enters the text again is told."""
    stored = GOOD.replace("[secret]", '[secret]\nspare = "an unused one"') + LOOSE
    settings = {"description": stored, "team": "a"}
    with pytest.raises(InvalidSettings) as error:
        Described.validate(settings)
    assert "secret.spare" in str(error.value) and "says more than http 503" in str(error.value)
    assert Described.destination(settings) and Described.sends_reports(settings)
    assert Described.carries(settings) == set() and not Described.asks_origin(settings)
    key = {"x-key": "hush"}
    assert Described.read_report(ReportRequest("POST", "https://x", key, b"{}"), ReportSource(settings, ["hush"])) == []
    with Pigeon() as vendor:
        [outcome] = send(settings | {"server": vendor.url}, {"token": "t", "spare": "s"}, LETTER)
        assert outcome == Accepted("p-1")


LOOSE = """
[[answer.rules]]
status = 503
is = "not sent"
[reports]
kind = "event"
id = "id"
kinds = { done = "delivered" }
[reports.signature]
scheme = "header"
header = "X-Key"
"""


ASKING = """
[lookup]
url = "https://api.pigeon.example/find/{reference}"
id = "id"
reference = "key"
proves = "both"
contract = "https://pigeon.example/docs#find"
"""


@pytest.mark.parametrize("elsewhere", ["https://query.pigeon.example", "http://api.pigeon.example",
                                       "https://api.pigeon.example:8443"])  # fmt: skip
def test_a_look_up_at_another_server_is_refused_and_a_stored_one_proves_nothing(elsewhere: str) -> None:
    read(GOOD + ASKING.replace(".example/find", ".example:443/find"))
    source = GOOD + ASKING.replace("https://api.pigeon.example", elsewhere, 1)
    assert faults(source)["lookup.url"][1].startswith("must be at the server of request.url")

    async def story(adapter: Described) -> None:
        assert adapter.capabilities.lookup == "none"
        assert isinstance(await adapter.look_up("ref-1"), NotSent)

    with Pigeon() as vendor:
        with_adapter({"description": source, "server": vendor.url}, {"token": "t"}, story)
        assert not vendor.calls


def test_that_a_vendor_does_not_have_a_letter_is_proved_by_its_own_404_alone() -> None:
    async def story(adapter: Described) -> None:
        assert adapter.capabilities.lookup == "strong"
        for content in (None, [], "nothing here"):
            vendor.next_answer = Answer(404, content)
            assert await adapter.look_up("ref-1") == NotSent("http 404 without JSON")
        vendor.next_answer = Answer(404, {"error": "no such letter"})
        assert await adapter.look_up("ref-1") is None

    with Pigeon() as vendor:
        with_adapter({"description": GOOD + ASKING, "server": vendor.url}, {"token": "t"}, story)


OPEN = {"bare": '\\"', "text": 'a = "\\"', "texts": 'a = """\\"', "literal": "a = '''\\\"", "lines": "a = 1\n"}


@pytest.mark.parametrize("kind", OPEN)
def test_the_lines_of_a_text_of_any_kind_are_found_in_one_look(kind: str) -> None:
    """Up to the longest that may be entered; for quotation marks that are never closed it was a look for each."""
    began, text = time.process_time(), OPEN[kind]
    positions.lines_of(text + text[-2 if kind != "lines" else 0 :] * (reading.LONGEST // len(text)))
    assert time.process_time() - began < 6, "seconds of a processor; it takes a fraction of one, and took a dozen"


def test_a_name_of_very_many_parts_is_refused_before_it_is_read() -> None:
    began = time.process_time()
    for name in ("a." * 30_000 + "a", '"a" . ' * 9_000 + "a"):
        for line in (f"{name} = 1", f"[{name}]"):
            with pytest.raises(InvalidSettings, match="line 2: a name has more than 64 parts"):
                reading.read_entered(f"\n{line}\n")
    assert time.process_time() - began < 10
    assert positions.deep_line("a." * 60 + "a = 1") == positions.deep_line("x = '" + "." * 500 + "'") == 0
    assert positions.deep_line("w" * 60_000 + "\n" + "w." * 50) == 0
