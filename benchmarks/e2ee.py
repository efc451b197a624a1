"""Print the cost of end-to-end encryption: medians in microseconds, attachments in MB/s, on one thread."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from tidings import e2ee
from tidings.e2ee import attachments

CHUNK = 64 * 1024  # bytes of an attachment's chunk


class Peer:
    """Device with the keys that a server would hand out."""

    def __init__(self) -> None:
        self.identity = e2ee.IdentityKeyPair.generate()
        self.signed = e2ee.SignedPreKey.generate(self.identity, key_id=1)
        self.one_time = e2ee.PreKey.generate(key_id=1)
        self.kyber = e2ee.KyberPreKey.generate(self.identity, key_id=1)

    def bundle(self, version: int) -> e2ee.PreKeyBundle:
        return e2ee.PreKeyBundle(
            registration_id=1,
            identity_key=self.identity.public,
            signed_prekey_id=1,
            signed_prekey=self.signed.public,
            signed_prekey_signature=self.signed.signature,
            prekey_id=1,
            prekey=self.one_time.public,
            kyber_prekey_id=1 if version == 4 else None,
            kyber_prekey=self.kyber.public if version == 4 else None,
            kyber_prekey_signature=self.kyber.signature if version == 4 else None,
        )

    def read_first(self, body: bytes) -> tuple[e2ee.SessionRecord, bytes]:
        message = e2ee.PreKeySignalMessage.parse(body)
        kyber = self.kyber if message.kyber_prekey_id is not None else None
        record = e2ee.SessionRecord.respond(None, self.identity, message, self.signed, self.one_time, kyber)
        return record, record.decrypt(e2ee.PREKEY, body)


def initiate(alice: Peer, bob: Peer, version: int = 4) -> e2ee.SessionRecord:
    """Return Alice's session with Bob, initiated from his bundle."""
    return e2ee.SessionRecord.initiate(alice.identity, 1, bob.bundle(version))


def measure(action: Callable[[], object], rounds: int, pause: float = 0.0) -> float:
    """Return the median of `rounds` calls, each timed alone, in microseconds.

    pause: seconds before each call
    """
    for _ in range(min(rounds, 100)):
        action()
    times = []
    for _ in range(rounds):
        if pause:
            # Idle time, in which other programs use the CPU caches.
            time.sleep(pause)
        started = time.perf_counter_ns()
        action()
        times.append(time.perf_counter_ns() - started)
    return statistics.median(times) / 1_000


def measure_version(version: int, length: int, rounds: int) -> dict[str, float]:
    alice, bob = Peer(), Peer()
    bundle, plaintext = bob.bundle(version), bytes(length)
    alices = e2ee.SessionRecord.initiate(alice.identity, 1, bundle)
    _, body = alices.encrypt(plaintext)
    bobs, read = bob.read_first(body)
    assert read == plaintext
    figures = {
        "set-up, initiator": measure(
            lambda: e2ee.SessionRecord.initiate(alice.identity, 1, bundle), max(20, rounds // 10)
        ),
        "set-up, responder, with its first message": measure(lambda: bob.read_first(body), max(20, rounds // 10)),
    }
    assert alices.decrypt(*bobs.encrypt(plaintext)) == plaintext
    assert bobs.decrypt(*alices.encrypt(plaintext)) == plaintext

    def one_way() -> None:
        assert bobs.decrypt(*alices.encrypt(plaintext)) == plaintext

    def round_trip() -> None:
        one_way()
        assert alices.decrypt(*bobs.encrypt(plaintext)) == plaintext

    figures[f"encrypt + decrypt {length} B"] = measure(one_way, rounds)
    figures[f"there and back {length} B, two DH steps"] = measure(round_trip, max(20, rounds // 4))
    one_way()
    sending, receiving = alices.sending_half(), alices.receiving_half()
    assert e2ee.SessionRecord.load(alice.identity, sending, receiving).sending_half() == sending
    figures["sending_half"] = measure(alices.sending_half, rounds)
    figures["receiving_half"] = measure(alices.receiving_half, rounds)
    figures["load, to send"] = measure(lambda: e2ee.SessionRecord.load(alice.identity, sending, receiving), rounds)
    figures[f"encrypt {length} B"] = measure(lambda: alices.encrypt(plaintext), rounds)

    sealer = e2ee.Sealer(e2ee.Keyring.from_master(e2ee.generate_data_key(), 1))
    context = ("account", "peer", 1, "sending")
    sealed = sealer.seal(sending, context=context)
    assert sealer.open(sealed, context) == sending
    figures["seal the sending half, warm"] = measure(lambda: sealer.seal(sending, context=context), rounds)
    figures["open the sending half, warm"] = measure(lambda: sealer.open(sealed, context), rounds)

    def load_send_and_seal() -> None:
        record = e2ee.SessionRecord.load(alice.identity, sealer.open(sealed, context), receiving)
        record.encrypt(plaintext)
        sealer.seal(record.sending_half(), context=context)

    figures[f"open, load, encrypt {length} B, seal"] = measure(load_send_and_seal, rounds)
    return figures


def measure_group(length: int, rounds: int) -> dict[str, float]:
    distribution_id, plaintext = bytes(16), bytes(length)
    sender, member = e2ee.SenderKeyRecord.create(distribution_id), e2ee.SenderKeyRecord(distribution_id)
    distribution = sender.distribution()
    member.process(distribution)
    sent = iter([sender.encrypt(plaintext) for _ in range(rounds + 200)])
    assert member.decrypt(next(sent)) == plaintext
    figures = {
        "create + distribution": measure(
            lambda: e2ee.SenderKeyRecord.create(distribution_id).distribution(), max(20, rounds // 10)
        ),
        "process": measure(lambda: e2ee.SenderKeyRecord(distribution_id).process(distribution), rounds),
        f"encrypt {length} B": measure(lambda: sender.encrypt(plaintext), rounds),
        f"decrypt {length} B": measure(lambda: member.decrypt(next(sent)), rounds),
    }
    sending, receiving = sender.to_bytes(), member.to_bytes()
    assert e2ee.SenderKeyRecord.from_bytes(receiving).to_bytes() == receiving
    figures["to_bytes, sender"] = measure(sender.to_bytes, rounds)
    figures["from_bytes, sender"] = measure(lambda: e2ee.SenderKeyRecord.from_bytes(sending), rounds)
    figures[f"bytes on the wire for {length} B"] = len(sender.encrypt(plaintext))
    return figures


def measure_attachment(megabytes: int) -> dict[str, float]:
    """Return MB/s of each pass over an attachment, in chunks of `CHUNK` bytes whose output is discarded."""
    key, chunk, count = attachments.generate_key(), bytes(CHUNK), megabytes * 1_000_000 // CHUNK
    kept = attachments.Encryptor(key)
    blob = [*(kept.update(chunk) for _ in range(count)), kept.finalize()]
    encryptor = attachments.Encryptor(key)
    started = time.perf_counter()
    written = sum(len(encryptor.update(chunk)) for _ in range(count)) + len(encryptor.finalize())
    encrypted = time.perf_counter()
    assert written == kept.size == encryptor.size
    verifier = attachments.Verifier(key, kept.digest)
    for part in blob:
        verifier.update(part)
    decryptor = verifier.finalize()
    verified = time.perf_counter()
    read = sum(len(decryptor.update(part)) for part in blob) + len(decryptor.finalize())
    decrypted = time.perf_counter()
    size = count * CHUNK
    assert read == size
    return {
        "encrypt": size / (encrypted - started) / 1e6,
        "verify, first pass": size / (verified - encrypted) / 1e6,
        "decrypt, second pass": size / (decrypted - verified) / 1e6,
        "verify + decrypt": size / (decrypted - encrypted) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5_000, help="calls timed for each figure (%(default)s)")
    parser.add_argument("--length", type=int, default=100, help="bytes of plaintext (%(default)s)")
    parser.add_argument("--megabytes", type=int, default=100, help="size of the attachment (%(default)s)")
    arguments = parser.parse_args()
    columns = [measure_version(version, arguments.length, arguments.rounds) for version in (3, 4)]
    print(f"{'medians, µs':<44}{'v3':>10}{'v4':>10}")
    for name in columns[0]:
        print(f"{name:<44}" + "".join(f"{figures[name]:>10.1f}" for figures in columns))
    for title, single in (
        ("sender keys, medians, µs", measure_group(arguments.length, arguments.rounds)),
        (f"attachment of {arguments.megabytes} MB, MB/s", measure_attachment(arguments.megabytes)),
    ):
        print(f"\n{title}")
        for name, figure in single.items():
            print(f"{name:<44}{figure:>10.1f}")


if __name__ == "__main__":
    main()
