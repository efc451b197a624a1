"""Files between handsets: the saved file equals the sent one, and every obstacle leads to one clear error."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from coreapp.webhook import inbound
from handset import errors, reading
from handset.attachments import pointers, transfer
from handset.attachments.pointers import AttachmentPointer
from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.devices.registration import DeviceRegistry
from handset.devices.row_sealer import RowSealer
from handset.robots.behaviours import Behaviour, number_of
from handset.settings import RobotsSettings
from handset.terminal import files as shelf
from harness import polling
from tests import migrated
from tests.handset.business import Recorder, business
from tests.handset.conftest import HANDSET_KEY, SECRETS, LiveNetwork, robots_running
from tests.handset.scripted import BUSINESS
from tests.handset.test_terminal import ADA, at_the_terminal, settings_for
from tidings.aio.clock import SystemClock
from tidings.client.attachments import CHUNK
from tidings.client.errors import FileLost, NetworkUnavailable
from tidings.client.http import NetworkApi
from tidings.e2ee import attachments
from tidings.installation.settings import DatabaseSettings
from tidings.media import kinds
from tidings.objects.store import MARKER
from tidings.storage.database import Database
from tidings.wire import content, media_objects

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
JPEG = b"\xff\xd8\xff\xe0" + bytes(2000)
OPUS = b"OggS" + bytes(22) + b"\x01\x13OpusHead" + bytes(2000)
MP4 = b"\x00\x00\x00\x18ftypisom" + bytes(2000)
MP3 = b"ID3\x03" + bytes(2000)
AMR = b"#!AMR\n" + bytes(2000)
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 " + bytes(2000)
PDF = b"%PDF-1.7\n" + bytes(2000)


@pytest.fixture
async def api(live_network: LiveNetwork) -> AsyncIterator[NetworkApi]:
    async with NetworkApi(live_network.http_url) as api:
        yield api


@pytest.fixture
async def device(live_network: LiveNetwork, api: NetworkApi, tmp_path: Path) -> AsyncIterator[Device]:
    """Registered device."""
    await migrated.create_sqlite(tmp_path / "device.db", "handset")
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path / 'device.db'}", pool_size=3), "handset")
    device = keys.new_device(ADA)
    registry = DeviceRegistry(FleetContext("files", database, RowSealer(HANDSET_KEY), SystemClock()), api)
    await registry.register(device, one_time=1, kyber_one_time=0, registration_key=SECRETS.registration_key)
    yield device
    await database.close()


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def only(made: Any) -> AttachmentPointer:
    """Return the only pointer in a content."""
    (found,) = pointers.find(made["type"], content.encode(made).decode())
    return found


@pytest.mark.parametrize(
    ("name", "data", "mime_type", "kind"),
    [
        ("cat.png", PNG, "image/png", "image"),
        ("photo", JPEG, "image/jpeg", "image"),
        ("wrong.png", JPEG, "image/jpeg", "image"),
        ("note.ogg", OPUS, kinds.OPUS, "audio"),
        ("note.opus", OPUS, kinds.OPUS, "audio"),
        ("film.mp4", MP4, "video/mp4", "video"),
        ("sound.m4a", MP4, "audio/mp4", "audio"),
        ("song.mp3", MP3, "audio/mpeg", "audio"),
        ("song.aac", MP3, "audio/aac", "audio"),
        ("call.amr", AMR, "audio/amr", "audio"),
        ("not-square.webp", WEBP, "image/webp", "document"),
        ("bill.pdf", PDF, "application/pdf", "document"),
        ("pretends.pdf", b"hello", kinds.UNKNOWN, "document"),
        ("notes.txt", b"hello", "text/plain", "document"),
        ("data", b"hello", kinds.UNKNOWN, "document"),
    ],
)
def test_a_file_is_sent_with_its_detected_type(name: str, data: bytes, mime_type: str, kind: str) -> None:
    assert transfer.detect(data[: kinds.HEAD], name) == (mime_type, kind)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 3 * CHUNK + 5])
async def test_a_saved_file_equals_the_sent_one(api: NetworkApi, device: Device, tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)  # the same in every run, as random bytes can look like a sound file
    seen: list[tuple[int, int]] = []
    made = await transfer.upload(
        api, device, write(tmp_path, "data.bin", data), progress=lambda *done: seen.append(done), caption="Look"
    )
    assert seen[-1] == (size, size)
    pointer = only(made)
    assert (pointer.kind, pointer.filename, pointer.caption, pointer.size) == ("document", "data.bin", "Look", size)
    assert pointer.sha256 == hashlib.sha256(data).hexdigest()
    seen.clear()
    saved = await transfer.save(api, device, pointer, tmp_path / "files", progress=lambda *done: seen.append(done))
    assert saved.name == "data.bin"
    assert saved.read_bytes() == data
    assert seen[-1] == (attachments.blob_size(size),) * 2
    # No file is overwritten, and no other file is left.
    again = await transfer.save(api, device, pointer, tmp_path / "files")
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == ["data (2).bin", "data.bin"]
    assert again.read_bytes() == data


@pytest.mark.parametrize("kind", media_objects.KINDS)
def test_the_business_reads_every_kind_of_media(kind: str) -> None:
    digest = base64.b64encode(bytes(32)).decode()
    key = base64.b64encode(bytes(64)).decode()
    made = {"blob": "b", "key": key, "digest": digest, "size": 3, "mime_type": "image/png", "sha256": "0" * 64}
    understood = inbound.read(content.encode({"type": kind, kind: made}))
    assert understood.kind == kind
    assert understood.pointer is not None


@pytest.mark.parametrize(
    ("name", "data", "options", "why"),
    [
        ("empty", b"", {}, "is empty"),
        ("cat.png", PNG, {"kind": "video"}, "image/png, which cannot be sent as video"),
        ("cat.png", PNG, {"kind": "voice"}, "cannot be sent as voice"),
        ("cat.png", PNG, {"kind": "hologram"}, "cannot be sent as hologram"),
        ("note.ogg", OPUS, {"caption": "x"}, "sent as audio cannot have a caption"),
        ("big.png", PNG + bytes(5 * 2**20), {"kind": "image"}, "at most 5,242,880 are sent as image"),
    ],
)
async def test_an_unsendable_file_is_reported_before_any_upload(
    api: NetworkApi, device: Device, tmp_path: Path, name: str, data: bytes, options: Any, why: str
) -> None:
    with pytest.raises(errors.BadFile, match=re.escape(why)):
        await transfer.upload(api, device, write(tmp_path, name, data), **options)


async def test_a_path_that_is_no_regular_file_is_reported(api: NetworkApi, device: Device, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reasons = {"none": "No such file", ".": "is not a regular file", "pipe": "is not a regular file"}
    for name, why in reasons.items():
        with pytest.raises(errors.BadFile, match=why):
            await transfer.upload(api, device, tmp_path / name)


async def test_a_file_too_large_for_its_kind_is_sent_as_a_document(
    api: NetworkApi, device: Device, tmp_path: Path
) -> None:
    made = await transfer.upload(api, device, write(tmp_path, "big.png", PNG + bytes(5 * 2**20)))
    assert (only(made).kind, only(made).mime_type) == ("document", "image/png")
    voice = await transfer.upload(api, device, write(tmp_path, "note.ogg", OPUS), kind="voice")
    assert only(voice).kind == "voice"


async def test_a_file_that_does_not_match_its_pointer_is_not_saved(
    api: NetworkApi, device: Device, tmp_path: Path
) -> None:
    good = only(await transfer.upload(api, device, write(tmp_path, "cat.png", PNG)))
    other = only(await transfer.upload(api, device, write(tmp_path, "dog.jpg", JPEG)))
    wrong: dict[str, dict[str, Any]] = {
        "unknown": {"blob": "x" * 43},
        "another blob": {"blob": other.blob},
        "another key": {"key": bytes(64)},
        "another digest": {"digest": bytes(32)},
        "another hash": {"sha256": "0" * 64},
        "a shorter file": {"size": good.size - 20},
        "a longer file": {"size": good.size + 20},
    }
    for what, change in wrong.items():
        pointer = AttachmentPointer(
            **{name: getattr(good, name) for name in AttachmentPointer.__struct_fields__} | change
        )
        with pytest.raises(FileLost):
            await transfer.save(api, device, pointer, tmp_path / "files")
        assert list((tmp_path / "files").iterdir()) == [], what


async def test_an_unwritable_folder_and_an_unavailable_network_are_reported(
    live_network: LiveNetwork, api: NetworkApi, device: Device, tmp_path: Path
) -> None:
    path = write(tmp_path, "cat.png", PNG)
    pointer = only(await transfer.upload(api, device, path))
    with pytest.raises(errors.CannotKeep, match=r"cat\.png.*(exists|Not a directory)"):
        await transfer.save(api, device, pointer, path)
    await live_network.stop()
    with pytest.raises(NetworkUnavailable):
        await transfer.save(api, device, pointer, tmp_path / "files")
    with pytest.raises(NetworkUnavailable):
        await transfer.upload(api, device, path)
    assert list((tmp_path / "files").iterdir()) == []


async def test_a_file_that_changes_while_read_is_not_sent(
    live_network: LiveNetwork, api: NetworkApi, device: Device, tmp_path: Path
) -> None:
    path = write(tmp_path, "log.txt", bytes(2 * CHUNK))

    def grow(done: int, total: int) -> None:
        with path.open("ab") as file:
            file.write(b"more")

    with pytest.raises(errors.BadFile, match="changed while it was read"):
        await transfer.upload(api, device, path, progress=grow)
    blobs = live_network.folder / "blobs"
    await polling.until(lambda: [path.name for path in blobs.iterdir()] == [MARKER], pause=0.01)


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("bill.pdf", "bill.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\system.ini", "system.ini"),
        (".bashrc", "bashrc"),
        # Marks of direction hide an extension: the first would be shown as `photoexe.png`.
        ("photo\u202egnp.exe", "photo_gnp.exe"),
        ("\u2067photo\u2069.exe", "_photo_.exe"),
        ("a\u200e.exe\u200f.png", "a_.exe_.png"),
        ("\u061ca\u202d.pdf", "_a_.pdf"),
        # Names in scripts that run from right to left stay.
        ("חשבון.pdf", "חשבון.pdf"),
        ("فاتورة ١٢.pdf", "فاتورة ١٢.pdf"),
        ("a\x1b[2J\nb.txt", "a_[2J_b.txt"),
        ("..", "image-00000000.png"),
        ("", "image-00000000.png"),
        ("ü" * 500 + ".pdf", "ü" * 58 + ".pdf"),
        ("a." + "\N{GRINNING FACE}" * 16, "a." + "\N{GRINNING FACE}" * 3),
    ],
)
def test_a_file_name_cannot_lead_outside_the_folder(filename: str, expected: str) -> None:
    assert pointers.name_of("image", filename, "image/png", "0" * 64) == expected


@given(st.text())
def test_any_filename_yields_a_valid_file_name(filename: str) -> None:
    name = pointers.name_of("document", filename, "x/y", "a" * 64)
    assert name not in ("", ".", "..")
    assert not set(name) & set("/\0\\")
    assert len(name.encode()) <= pointers.MAX_NAME


@given(
    kind=st.sampled_from([*media_objects.KINDS, "interactive", "template", "hsm", "text"]),
    raw=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["image", "type", "header", "components", "parameters", "blob"]), inner)
        ),
        max_leaves=10,
    ),
)
def test_any_json_is_read_without_an_exception(kind: str, raw: Any) -> None:
    assert pointers.find(kind, json.dumps({kind: raw})) == []
    reading.read(kind, json.dumps({kind: raw}))


async def pointed(sender: Recorder, path: Path, **options: Any) -> dict[str, Any]:
    """Return a content of the business's with a file that is stored on the network."""
    assert sender.fleet is not None
    async with NetworkApi(sender.http_url) as api:
        return await transfer.upload(api, sender.fleet.devices[BUSINESS], path, **options)


async def test_the_terminal_shows_and_saves_pictures(live_network: LiveNetwork, tmp_path: Path) -> None:
    settings = settings_for(live_network, tmp_path / "ada")
    async with business(live_network, tmp_path) as sender, at_the_terminal(settings) as ada:
        await ada.until("Connected")
        ada.type("/save")
        await ada.until("There is no file to save")
        assert sender.fleet is not None
        picture = await pointed(sender, write(tmp_path, "cat.png", PNG), caption="A cat")
        name = f"image-{hashlib.sha256(PNG).hexdigest()[:8]}.png"
        await sender.fleet.send_content(BUSINESS, ADA, picture)
        shown = await ada.until(r"\[image\]")
        assert shown.endswith(f": [image] {name}, image/png (2.1 kB)\n  | A cat\n  | (/save 1 saves it)")

        inside = picture["image"] | {"caption": None}
        header = {"type": "image", "image": inside}
        action = {"buttons": [{"type": "reply", "reply": {"id": "y", "title": "Yes"}}]}
        requested = {"type": "button", "header": header, "body": {"text": "This one?"}, "action": action}
        await sender.fleet.send_content(BUSINESS, ADA, {"type": "interactive", "interactive": requested})
        shown = await ada.until("This one")
        assert f"[image] {name}, image/png (2.1 kB)\n  | This one?" in shown
        assert shown.endswith("(/pick N answers)\n  | (/save 2 saves it)")
        template = {
            "filled": {"header": {"type": "image"}, "body": "See above"},
            "components": [{"type": "header", "parameters": [{"type": "image", "image": inside}]}],
        }
        await sender.fleet.send_content(BUSINESS, ADA, {"type": "template", "template": template})
        shown = await ada.until("See above")
        assert f"[image] {name}, image/png (2.1 kB)" in shown
        card = {"card_index": 0, "components": template["components"]}
        template = {
            "filled": {"body": "One", "cards": [{"index": 0, "header": {"type": "image"}, "body": "Red"}]},
            "components": [{"type": "carousel", "cards": [card]}],
        }
        await sender.fleet.send_content(BUSINESS, ADA, {"type": "template", "template": template})
        shown = await ada.until("Red")
        assert f"One\n  | [card 1]\n  | [image] {name}, image/png (2.1 kB)\n  | Red\n  | (/save 4 saves it)" in shown

        ada.type("/save")
        await ada.until(rf"^Saved .*{name} \(2.1 kB\)")
        ada.type("/save 1")
        await ada.until(rf"^Saved .*{name.replace('.png', '')} \(2\)\.png")
        assert (settings.files / name).read_bytes() == PNG
        for wrong in ("5", "0", "x", "99999999999"):
            ada.type(f"/save {wrong}")
        await ada.until_count("^Use /save N, from 1 to 4", 4)

        gone = picture | {"image": picture["image"] | {"blob": "x" * 43}}
        await sender.fleet.send_content(BUSINESS, ADA, gone)
        await ada.until(r"\(/save 5 saves it\)")
        ada.type("/save")
        await ada.until("^! not saved: the network does not have the file")


async def test_the_terminal_sends_files(live_network: LiveNetwork, tmp_path: Path) -> None:
    write(tmp_path, "my cat.png", PNG)
    write(tmp_path, "note.ogg", OPUS)
    async with (
        business(live_network, tmp_path) as sender,
        at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada,
    ):
        await ada.until("Connected")
        ada.type(f"/to {BUSINESS}")
        ada.type("/send")
        await ada.until(r"^Use /send FILE \[CAPTION\]")
        ada.type("/voice 'a' b")
        await ada.until(r"^Use /voice FILE;")
        ada.type("/send no/such/file")
        await ada.until("^! not sent: no/such/file: No such file")
        ada.type("/send ~nosuchuser/file")
        await ada.until("^! not sent: ~nosuchuser/file: No such file")
        ada.type(f'/send "{tmp_path}/my cat.png" What a cat')
        ada.type(f"/voice {tmp_path}/note.ogg")
        ada.type(f"/send {tmp_path}/note.ogg")
        await sender.until(lambda: [m.type for m in sender.messages] == ["image", "voice", "audio"])
        picture = json.loads(sender.messages[0].raw)["image"]
        assert (picture["caption"], picture["mime_type"], picture["size"]) == ("What a cat", "image/png", len(PNG))
        assert "filename" not in picture
        assert sender.fleet is not None
        (pointer,) = pointers.find("voice", sender.messages[1].raw)
        async with NetworkApi(live_network.http_url) as api:
            saved = await transfer.save(api, sender.fleet.devices[BUSINESS], pointer, tmp_path / "got")
        assert saved.suffix == ".ogg"
        assert saved.read_bytes() == OPUS


def test_a_long_transfer_reports_its_progress() -> None:
    lines: list[str] = []
    now = 0.0
    report = shelf.TransferProgress("film.mp4", lines.append, lambda: now)
    for second in range(9):
        now = second / 2
        report(second * 1_000_000, 16_000_000)
    assert lines == ["  film.mp4: 2.0 MB of 16.0 MB", "  film.mp4: 8.0 MB of 16.0 MB"]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("a.png", ("a.png", "")),
        ("a.png two words", ("a.png", "two words")),
        ('"a b.png" two words', ("a b.png", "two words")),
        ("'a b.png'", ("a b.png", "")),
        ('"a b.png', ('"a', "b.png")),
        ("", ("", "")),
    ],
)
def test_a_path_ends_at_a_space_or_its_closing_quote(argument: str, expected: tuple[str, str]) -> None:
    assert shelf.split(argument) == expected


def checked(result: str) -> float:
    return REGISTRY.get_sample_value("tidings_handset_files_total", {"result": result}) or 0.0


async def test_robots_open_received_files_and_return_files(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "handset.robots.checking")
    before = checked("opened"), checked("FileLost")
    async with robots_running(robots_settings), business(live_network, tmp_path) as sender:
        assert sender.fleet is not None
        picture = await pointed(sender, write(tmp_path, "cat.png", PNG))
        damaged = picture | {"image": picture["image"] | {"digest": base64.b64encode(bytes(32)).decode()}}
        echo = number_of(Behaviour.ECHOES, 0)
        for made, to in ((picture, number_of(Behaviour.READS, 0)), (damaged, number_of(Behaviour.READS, 0))):
            await sender.fleet.send_content(BUSINESS, to, made)
        await sender.fleet.send_content(BUSINESS, echo, picture)
        await sender.until(lambda: len(sender.messages) == 1)
        assert (sender.messages[0].peer, sender.messages[0].type) == (echo, "image")
        assert json.loads(sender.messages[0].raw) == picture
        await polling.until(lambda: (checked("opened"), checked("FileLost")) == (before[0] + 2, before[1] + 1))
    results = [(r.result, r.bytes) for r in caplog.records if r.getMessage() == "file.checked"]  # type: ignore[attr-defined]
    assert sorted(results) == [("FileLost", len(PNG)), ("opened", len(PNG)), ("opened", len(PNG))]


def test_the_repr_of_a_pointer_shows_no_key() -> None:
    pointer = AttachmentPointer("b", b"k" * 64, bytes(32), 3, "image/png", "0" * 64, kind="image")
    assert repr(pointer) == "AttachmentPointer(b, 3 bytes)"
