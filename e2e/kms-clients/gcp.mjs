// Holds the key server of internal/signing/kmstest to Google's own Node client:
//
//   go run ./internal/signing/kmstest/gcpserver      (prints the two arguments)
//   npm install && node gcp.mjs HOST:PORT projects/…/cryptoKeyVersions/N
//
// It gets the public key, signs, and checks the answers as Google's guide on
// data integrity says, CRC32C fields included; and it sees wrong requests refused.
import assert from 'node:assert/strict';
import { createHash, createPublicKey, verify } from 'node:crypto';
import kms from '@google-cloud/kms';
import grpc from '@grpc/grpc-js';

const [endpoint, name] = process.argv.slice(2);
const [host, port] = endpoint.split(':');
process.env.METADATA_SERVER_DETECTION = 'none'; // it is no cloud machine, and no credentials are wanted
const client = new kms.v1.KeyManagementServiceClient({
  projectId: 'test', servicePath: host, port: Number(port), sslCreds: grpc.credentials.createInsecure(),
});

// RFC 3720 B.4: the Castagnoli polynomial, reflected. Written out, so that it
// shares nothing with the server's.
function crc32c(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc >>> 0;
}
assert.equal(crc32c(Buffer.from('123456789')), 0xe3069283);

const [key] = await client.getPublicKey({ name });
assert.equal(key.name, name);
assert.equal(key.algorithm, 'EC_SIGN_P256_SHA256');
assert.equal(key.protectionLevel, 'HSM');
assert.equal(Number(key.pemCrc32c.value), crc32c(Buffer.from(key.pem)));
const publicKey = createPublicKey(key.pem);
assert.equal(publicKey.asymmetricKeyDetails.namedCurve, 'prime256v1');
console.log('getPublicKey: name, algorithm, protection level, pemCrc32c, P-256');

const [version] = await client.getCryptoKeyVersion({ name });
assert.equal(version.state, 'ENABLED');
console.log('getCryptoKeyVersion: ENABLED');

for (let i = 0; i < 20; i++) {
  const message = Buffer.from(`message ${i}`);
  const sha256 = createHash('sha256').update(message).digest();
  const [answer] = await client.asymmetricSign({ name, digest: { sha256 }, digestCrc32c: { value: crc32c(sha256) } });
  assert.equal(answer.name, name);
  assert.equal(answer.verifiedDigestCrc32c, true);
  assert.equal(Number(answer.signatureCrc32c.value), crc32c(answer.signature));
  assert(verify('sha256', message, publicKey, answer.signature));
  assert(!verify('sha256', Buffer.from('another'), publicKey, answer.signature));
}
console.log('asymmetricSign: 20 signatures verify, with name, verifiedDigestCrc32c and signatureCrc32c');

const refused = async (what, request, code) => {
  await assert.rejects(client.asymmetricSign(request, { retry: null }), (e) => e.code === code || assert.fail(`${what}: ${e.code} ${e.message}`));
  console.log(`refused: ${what} (${grpc.status[code]})`);
};
const sha256 = Buffer.alloc(32);
await refused('a digest of 31 bytes', { name, digest: { sha256: Buffer.alloc(31) } }, grpc.status.INVALID_ARGUMENT);
await refused('a wrong digestCrc32c', { name, digest: { sha256 }, digestCrc32c: { value: 1 } }, grpc.status.INVALID_ARGUMENT);
await refused('a version that is not there', { name: name.replace(/\d+$/, '99'), digest: { sha256 } }, grpc.status.NOT_FOUND);
await client.close();
