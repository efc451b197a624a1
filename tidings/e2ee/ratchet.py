"""Double Ratchet of one session."""

from typing import Final, NamedTuple

from tidings.e2ee import cbc, chains, curve, errors, kdf, messages, pq_ratchet, session_setup, state, work

MAX_CHAINS: Final = 5  # receiving chains per session; the oldest is dropped
MAX_COUNTER: Final = 2**32 - 1


class ChainLimits(NamedTuple):
    """Limits, in messages, on how far ahead a message may be. Chains are walked before anything has authenticated."""

    known: int  # steps on a chain whose ratchet key is known
    new: int  # steps on a chain that the message starts


# For a message that belongs to this session. Beyond this jump on a new chain not all keys could be stored.
FULL: Final = ChainLimits(chains.MAX_FORWARD_JUMP, chains.MAX_STORED_KEYS)
# For trying further sessions: as many messages as are in flight while two peers alternate between two sessions.
SHORT: Final = ChainLimits(chains.MAX_STORED_KEYS, 100)

_RATCHET_INFO: Final = b"WhisperRatchet"
_KEYS_INFO: Final = b"WhisperMessageKeys"


def start_as_initiator(
    version: int,
    local_identity: bytes,
    remote_identity: bytes,
    remote_registration_id: int,
    initiation: session_setup.Initiation,
    signed_prekey: bytes,
    pending: state.PendingSetUp,
    *,
    pq: bool,
) -> tuple[state.SendingHalf, state.ReceivingHalf]:
    """RatchetInitAlice of Double Ratchet section 3.3, with the receiving chain that Signal adds to it.

    Raises InvalidKey when the signed pre-key gives an all-zero shared secret.

    pq: whether the session gets the post-quantum ratchet, in version 4
    """
    keys = initiation.keys
    pair = curve.KeyPair.generate()
    root_key, chain_key = kdf_rk(keys.root_key, pair.agree(signed_prekey))
    own_pq = their_pq = None
    if pq and keys.pq_key is not None:
        own_pq, their_pq = pq_ratchet.start(keys.pq_key)
    sending = state.SendingHalf(
        version,
        True,
        remote_registration_id,
        remote_identity,
        pair.public,
        chain_key,
        0,
        0,
        own_pq,
        pq_ratchet.FIRST_INDEX,
    )
    receiving = state.ReceivingHalf(
        local_identity,
        pair,
        root_key,
        initiation.base_key,
        pending,
        [(signed_prekey, chains.ReceivingChain(keys.chain_key, 0, {}))],
        _pq_chain(their_pq),
    )
    return sending, receiving


def start_as_responder(
    local_identity: bytes,
    message: messages.PreKeySignalMessage,
    signed_prekey: curve.KeyPair,
    keys: session_setup.FirstKeys,
) -> tuple[state.SendingHalf, state.ReceivingHalf]:
    """RatchetInitBob of Double Ratchet section 3.3; the signed pre-key is the first ratchet key pair.

    The session has the post-quantum ratchet if the first message uses it.
    """
    own_pq = their_pq = None
    if keys.pq_key is not None and message.message.pq_ratchet:
        their_pq, own_pq = pq_ratchet.start(keys.pq_key)
    sending = state.SendingHalf(
        message.version,
        False,
        message.registration_id,
        message.identity_key,
        signed_prekey.public,
        keys.chain_key,
        0,
        0,
        own_pq,
        pq_ratchet.FIRST_INDEX,
    )
    receiving = state.ReceivingHalf(
        local_identity, signed_prekey, keys.root_key, message.base_key, None, [], _pq_chain(their_pq)
    )
    return sending, receiving


def encrypt(sending: state.SendingHalf, local_identity: bytes, plaintext: bytes) -> bytes:
    """RatchetEncrypt of Double Ratchet section 3.4: return an encoded SignalMessage. Needs no private key.

    Raises NoSession when the chain's 2^32 counters are exhausted.
    """
    counter, pq_chain_key, pq_index = sending.counter, sending.pq_chain_key, sending.pq_index
    if counter >= MAX_COUNTER or pq_index >= MAX_COUNTER:
        raise errors.NoSession("the session's counters are exhausted")
    next_chain_key, seed = chains.step(sending.chain_key, counter)
    salt, field_5 = kdf.ZERO_SALT, b""
    if pq_chain_key is not None:
        pq_chain_key, salt = pq_ratchet.step(pq_chain_key, pq_index)
        field_5 = pq_ratchet.encode(pq_index)
        pq_index += 1

    keys = kdf.hkdf(salt, seed, _KEYS_INFO, 80)
    ciphertext = cbc.encrypt(keys[:32], keys[64:], plaintext)
    head = messages.signal_message_head(sending.version, sending.ratchet_key)
    body = messages.encode_signal_message(head, counter, sending.previous_counter, ciphertext, field_5)
    body += messages.mac(keys[32:64], local_identity, sending.remote_identity, body)

    sending.chain_key = next_chain_key
    sending.counter = counter + 1
    sending.pq_chain_key = pq_chain_key
    sending.pq_index = pq_index
    return body


def knows(receiving: state.ReceivingHalf, message: messages.SignalMessage) -> bool:
    """Return whether the message is on a chain of this session.

    Ratchet keys are random, so it is then of no other one.
    """
    return _find_chain(receiving, message.ratchet_key) is not None


def decrypt(
    sending: state.SendingHalf,
    receiving: state.ReceivingHalf,
    message: messages.SignalMessage,
    reach: ChainLimits = FULL,
    spend: work.Spend = work.unlimited,
) -> tuple[bytes, bool]:
    """RatchetDecrypt of Double Ratchet section 3.5. Both halves change, and only once the message has authenticated.

    Returns the plaintext, and whether the receiving half may have become longer. Raises InvalidMessage (including
    TooFarAhead and OverBudget) and DuplicateMessage.
    """
    if message.version != sending.version:
        raise errors.InvalidMessage("the message is of another version than the session")
    chain = _find_chain(receiving, message.ratchet_key)
    new_root_key, limit = None, reach.known
    if chain is None:
        new_root_key, chain_key = _receiving_step(receiving, message.ratchet_key)
        chain, limit = chains.ReceivingChain(chain_key, 0, {}), reach.new
    lookup = chain.look_up(message.counter, chains.step, limit, spend)
    pq_lookup = _look_up_pq(receiving, message, limit, spend)

    keys = kdf.hkdf(pq_lookup.key if pq_lookup else kdf.ZERO_SALT, lookup.key, _KEYS_INFO, 80)
    message.authenticate(keys[32:64], sending.remote_identity, receiving.local_identity)
    plaintext = cbc.decrypt(keys[:32], keys[64:], message.ciphertext)

    if new_root_key is not None:
        pair = curve.KeyPair.generate()
        # The same key gave a non-zero secret in _receiving_step, so this cannot fail halfway through the changes.
        receiving.root_key, sending.chain_key = kdf_rk(new_root_key, pair.agree(message.ratchet_key))
        receiving.ratchet = pair
        receiving.receiving_chains = [*receiving.receiving_chains, (message.ratchet_key, chain)][-MAX_CHAINS:]
        sending.ratchet_key = pair.public
        # Double Ratchet section 3.5 has PN = Ns. The libraries send the last counter used; the field is not read.
        sending.previous_counter = max(sending.counter - 1, 0)
        sending.counter = 0
    chain.take(lookup)
    if pq_lookup is not None and receiving.pq_chain is not None:
        receiving.pq_chain.take(pq_lookup)
    receiving.pending = None
    sending.unacknowledged = False
    return plaintext, bool(new_root_key or lookup.skipped or (pq_lookup is not None and pq_lookup.skipped))


def kdf_rk(root_key: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """KDF_RK of Double Ratchet section 5.2: return (root key, chain key), each 32 bytes."""
    output = kdf.hkdf(root_key, secret, _RATCHET_INFO, 64)
    return output[:32], output[32:]


def _pq_chain(chain_key: bytes | None) -> chains.ReceivingChain | None:
    return None if chain_key is None else chains.ReceivingChain(chain_key, pq_ratchet.FIRST_INDEX, {})


def _find_chain(receiving: state.ReceivingHalf, ratchet_key: bytes) -> chains.ReceivingChain | None:
    for key, chain in reversed(receiving.receiving_chains):
        if key == ratchet_key:
            return chain
    return None


def _look_up_pq(
    receiving: state.ReceivingHalf, message: messages.SignalMessage, limit: int, spend: work.Spend
) -> chains.ChainLookup | None:
    """Return the salt of the message; None (salt zero) in a session without the post-quantum ratchet.

    Also None for a message from before the ratchet was negotiated, which can only be on the peer's first chain.
    """
    if receiving.pq_chain is None:
        return None
    if not message.pq_ratchet:
        raise errors.InvalidMessage("the session has a post-quantum ratchet, the message has none")
    index = pq_ratchet.parse(message.pq_ratchet)
    if index == pq_ratchet.NEGOTIATING:
        received = receiving.receiving_chains
        if received and (received[0][0] != message.ratchet_key or len(received) == MAX_CHAINS):
            raise errors.InvalidMessage("the peer no longer uses the post-quantum ratchet")
        return None
    try:
        return receiving.pq_chain.look_up(index, pq_ratchet.step, limit, spend)
    except errors.DuplicateMessage as error:
        # Indices start at 1 in every session, so the message may be of another session. A true duplicate has been
        # recognised by its ratchet key and counter already.
        raise errors.InvalidMessage(str(error)) from error


def _receiving_step(receiving: state.ReceivingHalf, ratchet_key: bytes) -> tuple[bytes, bytes]:
    """Return (root key, receiving chain key): the first half of a DH ratchet step (Double Ratchet section 3.5)."""
    try:
        return kdf_rk(receiving.root_key, receiving.ratchet.agree(ratchet_key))
    except errors.InvalidKey as error:
        raise errors.InvalidMessage(str(error)) from error
