"""The adapter `print_file` with a vendor's SFTP server that misbehaves at each step, and with a folder."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pypdf
import pytest

from tests.print.printed_once import printed_once
from tests.print.sftp_server import PASSWORD, SftpVendor
from tests.waiting import wait_until
from vendors.adapters.base import Attachment, Letter
from vendors.adapters.options import InvalidSettings
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.printing import pages
from vendors.printing.adapter import PrintFile

__all__ = ["printed_once"]
pytestmark = [
    pytest.mark.slow("processes"),
    pytest.mark.skipif(bool(pages.missing_libraries("asyncssh")), reason=pages.missing_libraries("asyncssh")),
]
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def letter(number: int, body: str = "<p>Dear reader</p>", **more: Any) -> Letter:
    return Letter(f"ref-{number}", f"Ann {number}\nMain Street 1\n12345 Town", "", body, html=True, **more)


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[SftpVendor]:
    with SftpVendor(tmp_path) as running:
        yield running


@asynccontextmanager
async def opened(settings: dict[str, Any], secret: dict[str, str]) -> AsyncIterator[PrintFile]:
    adapter = PrintFile(settings, secret)
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.close()


def sent(vendor: SftpVendor, *letters: Letter, **more: Any) -> list[Outcome]:
    async def story() -> list[Outcome]:
        secret = more.pop("secret", None) or vendor.secret()
        async with opened(vendor.settings(**more), secret) as adapter:
            return await adapter.send(letters)

    return asyncio.run(story())


def test_a_batch_is_one_pdf_and_a_manifest_that_says_whose_pages_are_whose(vendor: SftpVendor) -> None:
    long = "<p style='break-after: page'>one</p><p style='break-after: page'>two</p><p>three</p>"
    made = [letter(1), letter(2, long), letter(3)]
    outcomes = sent(vendor, *made, colour="yes", window="din5008b")
    assert all(isinstance(one, InDoubt) and one.wait == 172_800 for one in outcomes), outcomes
    [manifest] = vendor.manifests()
    rows = list(csv.DictReader(io.StringIO(manifest.read_text())))
    assert [(row["reference"], row["first_page"], row["pages"]) for row in rows] == [
        ("ref-1", "1", "1"), ("ref-2", "2", "3"), ("ref-3", "5", "1"),
    ]  # fmt: skip
    assert {(row["duplex"], row["colour"]) for row in rows} == {("no", "yes")}
    assert [rows[0][f"address_{n}"] for n in range(1, 5)] == ["Ann 1", "Main Street 1", "12345 Town", ""]
    printed = pypdf.PdfReader(manifest.with_suffix(".pdf"))
    texts = [page.extract_text() for page in printed.pages]
    assert len(texts) == 5 and "Ann 2" in texts[1] and "three" in texts[3] and "Ann 2" not in texts[3]
    assert not list(manifest.parent.glob("*.part"))


def test_the_same_letters_are_one_batch_however_often_they_are_brought(vendor: SftpVendor) -> None:
    for _ in range(3):
        sent(vendor, letter(1), letter(2))
    assert len(vendor.manifests()) == 1 and set(vendor.visible.values()) == {1}


def test_letters_that_cannot_be_brought_together_in_time_go_out_in_smaller_batches(
    vendor: SftpVendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that needs longer than there is time for more than three: the same eight letters over and over."""
    merge = pages.PageMaker.merge_parts

    async def slow(maker: pages.PageMaker, parts: Sequence[bytes], *, fronts: bool) -> bytes:
        if len(parts) > 3:
            raise TimeoutError  # as asyncio.timeout does
        return await merge(maker, parts, fronts=fronts)

    monkeypatch.setattr(pages.PageMaker, "merge_parts", slow)
    left = [letter(number) for number in range(8)]

    async def story() -> int:
        tries = 0
        async with opened(vendor.settings(), vendor.secret()) as adapter:
            while left:
                tries += 1
                assert tries < 20, f"{len(left)} letters come back again and again"
                outcomes = await adapter.send(left)
                left[:] = [one for one, outcome in zip(left, outcomes, strict=True) if isinstance(outcome, NotSent)]
        return tries

    assert asyncio.run(story()) <= 8
    rows = [row["reference"] for one in vendor.manifests() for row in csv.DictReader(io.StringIO(one.read_text()))]
    assert sorted(rows) == [f"ref-{number}" for number in range(8)]


BEFORE = [
    ("open", ".part", "cut"), ("open", ".pdf", "cut"), ("write", ".part", "cut"), ("write", ".pdf", "cut"),
    ("write", ".pdf", "full"), ("write", ".part", "full"), ("rename", ".pdf", "cut"), ("rename", ".pdf", "full"),
    ("rename", ".pdf", "done and cut"), ("rename", "", "full"), ("rename", "", "cut"), ("write", ".pdf", "hang"),
]  # fmt: skip


@pytest.mark.usefixtures("printed_once")
@pytest.mark.parametrize(("step", "end", "wild"), BEFORE)
def test_what_fails_before_the_manifest_has_its_name_was_not_sent(
    vendor: SftpVendor, step: str, end: str, wild: str
) -> None:
    """Also a last rename that the server provably has not done: its temporary name could be removed."""
    vendor.wild[step, end] = wild
    hurried = {"timeout": "2", "uploading": "3"} if wild == "hang" else {}  # else a slow machine ends it, too

    def met() -> list[Outcome]:
        found = sent(vendor, letter(1), **hurried)
        return [] if vendor.wild else found

    (first,) = wait_until(met, "it has misbehaved")
    assert isinstance(first, NotSent) and first.scope == "credential" and not first.pause, first
    assert not vendor.visible and not vendor.manifests()
    (again,) = sent(vendor, letter(1))
    assert isinstance(again, InDoubt) and again.wait and set(vendor.visible.values()) == {1}


@pytest.mark.usefixtures("printed_once")
def test_a_rename_whose_answer_is_lost_is_found_to_be_done(vendor: SftpVendor) -> None:
    vendor.wild["rename", ""] = "done and cut"
    (outcome,) = sent(vendor, letter(1))
    assert isinstance(outcome, InDoubt) and outcome.wait and set(vendor.visible.values()) == {1}


@pytest.mark.usefixtures("printed_once")
def test_a_rename_of_which_nobody_can_tell_is_in_doubt(vendor: SftpVendor) -> None:
    vendor.wild |= {("rename", ""): "done and cut", ("remove", ".part"): "cut"}
    (outcome,) = sent(vendor, letter(1))
    assert isinstance(outcome, InDoubt) and not outcome.wait and "mailhub-" in outcome.reason


@pytest.mark.usefixtures("printed_once")
def test_a_batch_whose_temporary_name_somebody_else_removed_is_not_taken_for_brought(vendor: SftpVendor) -> None:
    vendor.wild["rename", ""] = "stolen"
    (outcome,) = sent(vendor, letter(1), accepted="uploaded")
    assert isinstance(outcome, InDoubt) and not outcome.wait and "is gone" in outcome.reason
    assert not vendor.visible


@pytest.mark.usefixtures("printed_once")
def test_a_folder_that_refuses_us_pauses(vendor: SftpVendor) -> None:
    vendor.wild["open", ".pdf"] = "denied"
    (outcome,) = sent(vendor, letter(1))
    assert isinstance(outcome, NotSent) and outcome.pause


@pytest.mark.usefixtures("printed_once")
def test_another_servers_key_a_wrong_login_and_no_server_get_no_letter(vendor: SftpVendor) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    (outcome,) = sent(vendor, letter(1), host_key=other)
    assert isinstance(outcome, NotSent) and outcome.pause and "another host key" in outcome.reason
    (outcome,) = sent(vendor, letter(1), secret={"password": "guess"})
    assert isinstance(outcome, NotSent) and outcome.pause and "login" in outcome.reason
    assert isinstance(sent(vendor, letter(1), secret={"password": PASSWORD})[0], InDoubt)
    vendor.stop()
    (outcome,) = sent(vendor, letter(2))
    assert isinstance(outcome, NotSent) and not outcome.pause and outcome.retry_after
    vendor.start(vendor.port)


def test_a_cancelled_call_leaves_no_process_and_no_connection(vendor: SftpVendor) -> None:
    vendor.wild["write", ".pdf"] = "hang"

    async def story() -> None:
        async with opened(vendor.settings(timeout="20"), vendor.secret()) as adapter:
            call = asyncio.ensure_future(adapter.send([letter(1)]))
            while vendor.wild:
                await asyncio.sleep(0.02)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(story())
    assert not vendor.visible


SVG = "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'>{}</svg>"
URLS = ["http://{}/x.png", "file:///etc/passwd", "/etc/passwd", "cid:other", "ftp://{}/y", "//{}/y", "gopher://{}"]
SHOWING = {
    "image": "<img src='URL'>",
    "background": "<p style='background: url(URL)'>x",
    "import": "<style>@import url(URL);</style>x",
    "style sheet": "<link rel=stylesheet href='URL'>x",
    "attachment": "<link rel=attachment href='URL'>x",
    "file to click": "<a rel=attachment href='URL'>x</a>",
    "object": "<object data='URL'></object>",
    "embedded": "<embed src='URL' type='image/svg+xml'>",
    "font": "<style>@font-face {font-family: a; src: url(URL)} p {font-family: a}</style><p>x",
    "in SVG": SVG.format("<image xlink:href='URL' width='9' height='9'/>"),
    "content": "<style>p::before {content: url(URL)}</style><p>x",
    "list": "<ul style='list-style-image: url(URL)'><li>x</ul>",
}
HARMLESS = {  # they show nothing of it
    "base": "<base href='URL'>x",
    "frame": "<iframe src='URL'></iframe>x",
    "script": "<script src='URL'></script>x",
    "refreshed": "<meta http-equiv=refresh content='0; url=URL'>x",
    "link": "<a href='URL'>x</a>",
    "used by SVG": SVG.format("<use xlink:href='URL#a'/>"),
    "processing": "<?xml-stylesheet href='URL'?>x",
}


class Listening:
    """An HTTP server on loopback that counts who comes."""

    def __enter__(self) -> Listening:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def nobody_came(self) -> bool:
        with pytest.raises(BlockingIOError):
            self._socket.accept()
        return True


def printed(*bodies: str, **more: Any) -> list[str]:
    """The text of each PDF, or why there is none."""

    async def story() -> list[str]:
        maker, found = pages.PageMaker(), []
        try:
            for body in bodies:
                try:
                    made = await maker.render_letter(pages.Look(**more).page_request(letter(1, body), ["Ann"]), ())
                    reader = pypdf.PdfReader(io.BytesIO(made.pdf))
                    found.append(f"printed {reader.pages[0].extract_text()} {reader.attachments}")
                except pages.NotPrintable as why:
                    found.append(f"not printable: {why}")
        finally:
            await maker.close()
        return found

    return asyncio.run(story())


def test_making_pages_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WeasyPrint looks for its libraries by names that few systems have, and Python asks compilers about those."""
    started = tmp_path / "started"
    for name in ("gcc", "cc", "ld", "sh"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {name} >> {started}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "short" in printed("<p>short</p>")[0]
    assert not started.exists()


def test_letters_reach_no_server_and_no_file() -> None:
    with Listening() as server:
        urls = [
            url.replace("{}", f"http://{server.address}" if url.startswith("{") else server.address) for url in URLS
        ]
        asked = [(name, url, body.replace("URL", url)) for name, body in (SHOWING | HARMLESS).items() for url in urls]
        found = printed(*[body for *_, body in asked])
        assert server.nobody_came()
    users = Path("/etc/passwd").read_text().splitlines()
    for (name, url, _), text in zip(asked, found, strict=True):
        assert text.startswith("not printable" if name in SHOWING else "printed"), (name, url, text)
        assert not any(line in text for line in users)


BAD = [
    "<img src='file:///etc/passwd'>", "<img src='data:image/png;base64,AAAA'>", "<img src='cid:other'>",
    "<style>@page {size: A5}</style>x", "<p style='break-after: page'>x</p>" * 30, "<div>" * 5000,
    "<img src=\"data:image/svg+xml,<!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><svg>&x;</svg>\">",
]  # fmt: skip


def test_a_letter_that_cannot_be_printed_is_refused_and_harms_no_other(vendor: SftpVendor) -> None:
    """Each between two good ones."""
    letters = [letter(number, BAD[number // 2] if number % 2 else "<p>good</p>") for number in range(2 * len(BAD) + 1)]
    outcomes = sent(vendor, *letters)
    for bad in outcomes[1::2]:
        assert isinstance(bad, Refused) and bad.code == "unsendable" and bad.sub_type, bad
    assert all(isinstance(good, InDoubt) for good in outcomes[::2]), outcomes
    references = [f"ref-{number}" for number in range(0, len(letters), 2)]
    assert [row["reference"] for row in csv.DictReader(io.StringIO(vendor.manifests()[0].read_text()))] == references


def png(side: int) -> bytes:
    """A black image; its side is a multiple of 1000."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(9, wbits=-15)
    part = packer.compress(bytes(1000 * (1 + 3 * side))) + packer.flush(zlib.Z_FULL_FLUSH)  # it stands for itself
    size = side * (1 + 3 * side)
    checksum = struct.pack(">I", size % 65521 << 16 | 1)  # Adler's of so many zeros
    packed = b"\x78\xda" + side // 1000 * part + packer.flush() + checksum
    about = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", about) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def test_an_image_that_unfolds_to_gigabytes_is_refused(vendor: SftpVendor) -> None:
    bomb = Attachment("bomb.png", "image/png", png(20_000), cid="bomb")
    assert len(bomb.content) < 2_000_000
    bad, good = sent(vendor, letter(1, "<img src='cid:bomb'>", attachments=(bomb,)), letter(2))
    assert isinstance(bad, Refused) and "bomb" in bad.sub_type and isinstance(good, InDoubt)


def test_a_letter_that_takes_too_long_is_refused() -> None:
    endless = "<table>" + "<tr><td>x<td>y" * 20_000 + "</table>"
    first, second = printed(endless, "<p>short</p>", seconds=1.0)
    assert "too long" in first and "short" in second


@pytest.mark.parametrize(("times", "says"), [(1, "printed"), (2, "not printable")])
def test_a_process_that_ends_is_started_anew_and_what_ends_it_twice_is_not_printed(times: int, says: str) -> None:
    async def story() -> str:
        maker = pages.PageMaker()
        long = letter(1, "<p>" + "word " * 20_000)
        asked = asyncio.ensure_future(maker.render_letter(pages.Look(pages_max=1000).page_request(long, ["Ann"]), ()))
        known: set[int] = set()
        while not asked.done() and len(known) < times:
            process = maker._process
            if process is not None and process.returncode is None and process.pid not in known:
                known.add(process.pid)
                process.kill()
            await asyncio.sleep(0.01)
        try:
            return f"printed {(await asked).pages}"
        except pages.NotPrintable as why:
            return f"not printable: {why}"
        finally:
            await maker.close()

    assert asyncio.run(story()).startswith(says)


def test_in_duplex_each_letter_begins_on_a_front(vendor: SftpVendor) -> None:
    long = "<p style='break-after: page'>one</p><p style='break-after: page'>two</p><p>three</p>"
    sent(vendor, letter(1), letter(2, long), letter(3), duplex="yes")
    [manifest] = vendor.manifests()
    rows = list(csv.DictReader(io.StringIO(manifest.read_text())))
    assert [(row["first_page"], row["pages"]) for row in rows] == [("1", "1"), ("3", "3"), ("7", "1")]
    texts = [page.extract_text() for page in pypdf.PdfReader(manifest.with_suffix(".pdf")).pages]
    assert [bool(text) for text in texts] == [True, False, True, True, True, False, True]


def test_a_letter_shows_its_own_images_and_nobody_elses(vendor: SftpVendor) -> None:
    own = (Attachment("dot.png", "image/png", DOT, cid="dot"),)
    body = "<img src='cid:dot'>"
    first, second = sent(vendor, letter(1, body, attachments=own), letter(2, body))
    assert isinstance(first, InDoubt) and isinstance(second, Refused)
    printed = pypdf.PdfReader(vendor.manifests()[0].with_suffix(".pdf"))
    assert len(printed.pages[0].images) == 1
    (refused,) = sent(vendor, letter(3, attachments=(Attachment("terms.pdf", "application/pdf", b"%PDF"),)))
    assert isinstance(refused, Refused) and "terms.pdf" in refused.sub_type


def test_letters_for_which_there_is_no_time_wait_for_another_batch(vendor: SftpVendor) -> None:
    outcomes = sent(vendor, *[letter(n, "<p>x</p>" * 3000) for n in range(12)], making="1.5", pages_max="200")
    assert isinstance(outcomes[-1], NotSent) and outcomes[-1].puts_off, outcomes[-1]


def test_letters_are_weighed_by_pages_or_sheets_and_made_once(vendor: SftpVendor) -> None:
    two = letter(1, "<p>one</p><p style='break-before: page'>two</p>")
    shows = letter(2, "<img src='cid:dot'>", attachments=(Attachment("dot.png", "image/png", DOT, cid="dot"),))

    async def story(**more: Any) -> list[Any]:
        async with opened(vendor.settings(**more), vendor.secret()) as adapter:
            found: list[Any] = [await adapter.weigh(one) for one in (two, shows, shows._replace(attachments=()))]
            found += [await adapter.weigh(letter(3, "<img src='file:///etc/passwd'>"))]
            found.append(len(adapter._weighed))
            outcomes = await adapter.send([two, shows])
            assert all(isinstance(one, InDoubt) for one in outcomes), outcomes
            return [*found, len(adapter._weighed)]

    assert asyncio.run(story(unit="page")) == [2, 1, 1, 1, 2, 0]
    assert asyncio.run(story(unit="sheet", duplex="yes")) == [1, 1, 1, 1, 2, 0]
    assert asyncio.run(story()) == [1, 1, 1, 1, 0, 0]


@pytest.mark.usefixtures("printed_once")
class TestFolder:
    def test_a_folder_below_the_setting_takes_batches(self, tmp_path: Path, settings: Any) -> None:
        settings.PRINT_FOLDER = str(tmp_path)
        (tmp_path / "amazing").mkdir()
        known = {"folder": "amazing", "accepted": "uploaded"}

        async def story() -> list[Outcome]:
            async with opened(known, {}) as adapter:
                return await adapter.send([letter(1), letter(2)])

        outcomes = asyncio.run(story())
        assert all(isinstance(one, Accepted) and one.vendor_id.endswith(("/ref-1", "/ref-2")) for one in outcomes)
        assert len(list((tmp_path / "amazing").iterdir())) == 2

    def test_a_folder_that_is_not_there_or_leads_elsewhere_pauses(self, tmp_path: Path, settings: Any) -> None:
        settings.PRINT_FOLDER = str(tmp_path / "print")
        (tmp_path / "print").mkdir()
        (tmp_path / "secret").mkdir()
        (tmp_path / "print" / "link").symlink_to(tmp_path / "secret")

        async def story(folder: str) -> Outcome:
            async with opened({"folder": folder, "accepted": "uploaded"}, {}) as adapter:
                return (await adapter.send([letter(1)]))[0]

        for name in ("nowhere", "link"):
            outcome = asyncio.run(story(name))
            assert isinstance(outcome, NotSent) and outcome.pause, outcome
        assert not list((tmp_path / "secret").iterdir())


def test_settings_that_lack_a_host_key_or_lead_out_are_refused(vendor: SftpVendor) -> None:
    for wrong in ({"host_key": ""}, {"folder": "../x"}, {"acknowledgements": ""}, {"temporary": ".csv"}):
        with pytest.raises(InvalidSettings):
            PrintFile(vendor.settings(**wrong), vendor.secret())
    with pytest.raises(InvalidSettings, match="host_key") as error:
        PrintFile(vendor.settings(host_key="ssh-ed25519 nonsense"), vendor.secret())
    with pytest.raises(InvalidSettings, match="private_key") as error:
        PrintFile(vendor.settings(), {"private_key": "hush"})
    assert "hush" not in str(error.value)


@pytest.mark.usefixtures("printed_once")
def test_a_look_up_reads_the_manifests_that_stay(vendor: SftpVendor) -> None:
    sent(vendor, letter(1), letter(2))

    async def asked(reference: str, **more: Any) -> Any:
        async with opened(vendor.settings(manifests_stay="yes", **more), vendor.secret()) as adapter:
            assert adapter.capabilities.lookup == "weak"
            return await adapter.look_up(reference)

    assert asyncio.run(asked("ref-3")) is None
    assert isinstance(asyncio.run(asked("ref-2", accepted="uploaded")), Accepted)
    assert isinstance(asyncio.run(asked("ref-2")), NotSent)
    (vendor.root / "in" / "mailhub-1.csv").write_text("garbage")
    assert isinstance(asyncio.run(asked("ref-3")), NotSent), "it may be in the one that cannot be read"
