// Device of an official release of Signal's library, `node peer.mjs PACKAGE`: per line one JSON command, one response.
import * as readline from 'node:readline';

const signal = await import(process.argv[2]);

const bytes = (text) => Buffer.from(text, 'base64');
const text = (data) => Buffer.from(data).toString('base64');
// Later releases also require the sender, and one generation of them whether to use the post-quantum ratchet.
const addresses = () => (signal.signalEncrypt.length >= 5 ? [remote, local] : [remote]);
const ratchet = 'UsePQRatchet' in signal ? [signal.UsePQRatchet.Yes] : [];

const local = signal.ProtocolAddress.new('official', 1);
const remote = signal.ProtocolAddress.new('tidings', 1);
const identity = signal.IdentityKeyPair.generate();
const registrationId = 4711;

class Sessions extends signal.SessionStore {
  kept = new Map();
  async saveSession(name, record) { this.kept.set(name.toString(), record); }
  async getSession(name) { return this.kept.get(name.toString()) ?? null; }
  async getExistingSessions(names) { return names.map((name) => this.kept.get(name.toString())); }
}

class Identities extends signal.IdentityKeyStore {
  kept = new Map();
  async getIdentityKey() { return identity.privateKey; }
  async getLocalRegistrationId() { return registrationId; }
  // Later releases expect an `IdentityChange`, earlier ones a boolean: whether it replaced another identity.
  async saveIdentity(name, key) { this.kept.set(name.toString(), key); return 'IdentityChange' in signal ? 0 : false; }
  async isTrustedIdentity() { return true; }
  async getIdentity(name) { return this.kept.get(name.toString()) ?? null; }
}

const keys = (Base, kind) => new (class extends Base {
  kept = new Map();
  async [`save${kind}`](id, record) { this.kept.set(id, record); }
  async [`get${kind}`](id) { if (!this.kept.has(id)) throw new Error(`no ${kind} ${id}`); return this.kept.get(id); }
  async [`remove${kind}`](id) { this.kept.delete(id); }
  async [`mark${kind}Used`](id) {}
})();

class SenderKeys extends signal.SenderKeyStore {
  kept = new Map();
  async saveSenderKey(sender, id, record) { this.kept.set(`${sender.toString()} ${id}`, record); }
  async getSenderKey(sender, id) { return this.kept.get(`${sender.toString()} ${id}`) ?? null; }
}

const sessions = new Sessions(), identities = new Identities(), senderKeys = new SenderKeys();
const preKeys = keys(signal.PreKeyStore, 'PreKey');
const signedPreKeys = keys(signal.SignedPreKeyStore, 'SignedPreKey');
const kyberPreKeys = keys(signal.KyberPreKeyStore, 'KyberPreKey');
const distributionId = '7b5bd5a4-3f6c-4d0e-9a41-6d3a5ce1f0b2';
let nextId = 1;

const commands = {
  async bundle() {
    const id = nextId++;
    const preKey = signal.PrivateKey.generate(), signed = signal.PrivateKey.generate(), kyber = signal.KEMKeyPair.generate();
    const signature = identity.privateKey.sign(signed.getPublicKey().serialize());
    const kyberSignature = identity.privateKey.sign(kyber.getPublicKey().serialize());
    await preKeys.savePreKey(id, signal.PreKeyRecord.new(id, preKey.getPublicKey(), preKey));
    await signedPreKeys.saveSignedPreKey(
      id, signal.SignedPreKeyRecord.new(id, Date.now(), signed.getPublicKey(), signed, signature));
    await kyberPreKeys.saveKyberPreKey(id, signal.KyberPreKeyRecord.new(id, Date.now(), kyber, kyberSignature));
    return {
      registration_id: registrationId, identity_key: text(identity.publicKey.serialize()),
      prekey_id: id, prekey: text(preKey.getPublicKey().serialize()),
      signed_prekey_id: id, signed_prekey: text(signed.getPublicKey().serialize()), signed_prekey_signature: text(signature),
      kyber_prekey_id: id, kyber_prekey: text(kyber.getPublicKey().serialize()), kyber_prekey_signature: text(kyberSignature),
    };
  },
  async process({ bundle: b }) {
    const key = (data) => signal.PublicKey.deserialize(bytes(data));
    const bundle = signal.PreKeyBundle.new(
      b.registration_id, 1, b.prekey_id, b.prekey === null ? null : key(b.prekey), b.signed_prekey_id, key(b.signed_prekey),
      bytes(b.signed_prekey_signature), key(b.identity_key), b.kyber_prekey_id,
      b.kyber_prekey === null ? null : signal.KEMPublicKey.deserialize(bytes(b.kyber_prekey)),
      b.kyber_prekey_signature === null ? null : bytes(b.kyber_prekey_signature));
    await signal.processPreKeyBundle(bundle, ...addresses(), sessions, identities, ...ratchet);
    return {};
  },
  async encrypt({ plaintext }) {
    const message = await signal.signalEncrypt(bytes(plaintext), ...addresses(), sessions, identities);
    return { kind: message.type(), body: text(message.serialize()) };
  },
  async decrypt({ kind, body }) {
    if (kind === signal.CiphertextMessageType.PreKey) {
        const message = signal.PreKeySignalMessage.deserialize(bytes(body));
      const read = await signal.signalDecryptPreKey(
        message, ...addresses(), sessions, identities, preKeys, signedPreKeys, kyberPreKeys, ...ratchet);
      return { plaintext: text(read), version: message.version() };
    }
    return { plaintext: text(await signal.signalDecrypt(signal.SignalMessage.deserialize(bytes(body)), ...addresses(), sessions, identities)) };
  },
  async distribute() {
    const message = await signal.SenderKeyDistributionMessage.create(local, distributionId, senderKeys);
    return { distribution: text(message.serialize()) };
  },
  async process_distribution({ distribution }) {
    const message = signal.SenderKeyDistributionMessage.deserialize(bytes(distribution));
    await signal.processSenderKeyDistributionMessage(remote, message, senderKeys);
    return {};
  },
  async group_encrypt({ plaintext }) {
    const message = await signal.groupEncrypt(local, distributionId, senderKeys, bytes(plaintext));
    return { body: text(message.serialize()) };
  },
  async group_decrypt({ body }) {
    return { plaintext: text(await signal.groupDecrypt(remote, senderKeys, bytes(body))) };
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { call, ...rest } = JSON.parse(line);
  try {
    process.stdout.write(JSON.stringify(await commands[call](rest)) + '\n');
  } catch (error) {
    process.stdout.write(JSON.stringify({ error: String(error) }) + '\n');
  }
}
