// Holds the key server of internal/signing/kmstest to Amazon's own Node client:
//
//   go run ./internal/signing/kmstest/awsserver      (prints the arguments)
//   npm install && node aws.mjs ENDPOINT ARN...
//
// It describes the key, gets the public key, signs, verifies with Node's own
// crypto, and sees wrong requests refused by the classes of the client.
import assert from 'node:assert/strict';
import { createHash, createPublicKey, verify } from 'node:crypto';
import {
  KMSClient, SignCommand, GetPublicKeyCommand, DescribeKeyCommand, NotFoundException, DisabledException,
  KMSInvalidStateException, InvalidKeyUsageException, UnsupportedOperationException, DryRunOperationException,
  KMSServiceException,
} from '@aws-sdk/client-kms';

const [endpoint, KeyId, disabled, leaving, p384, symmetric] = process.argv.slice(2);
const settings = { region: 'eu-central-1', maxAttempts: 1, credentials: { accessKeyId: 'AKIATESTTESTTESTTEST', secretAccessKey: 'of-no-account' } };
const client = new KMSClient({ ...settings, endpoint });

const { KeyMetadata: key } = await client.send(new DescribeKeyCommand({ KeyId }));
assert.equal(key.Arn, KeyId);
assert.equal(key.KeyState, 'Enabled');
assert.equal(key.KeySpec, 'ECC_NIST_P256');
assert(key.CreationDate instanceof Date && Math.abs(Date.now() - key.CreationDate) < 3600_000);
console.log('DescribeKey: ARN, state, spec, date');

const pub = await client.send(new GetPublicKeyCommand({ KeyId: KeyId.split('/')[1] }));
assert.equal(pub.KeyId, KeyId);
assert.equal(pub.KeyUsage, 'SIGN_VERIFY');
assert.deepEqual(pub.SigningAlgorithms, ['ECDSA_SHA_256']);
const publicKey = createPublicKey({ key: Buffer.from(pub.PublicKey), format: 'der', type: 'spki' });
assert.equal(publicKey.asymmetricKeyDetails.namedCurve, 'prime256v1');
console.log('GetPublicKey: by id, ARN, usage, algorithms, P-256');

for (let i = 0; i < 20; i++) {
  const text = Buffer.from(`message ${i}`);
  const raw = i % 2 === 0;
  const answer = await client.send(new SignCommand({
    KeyId, SigningAlgorithm: 'ECDSA_SHA_256', MessageType: raw ? 'RAW' : 'DIGEST', Message: raw ? text : createHash('sha256').update(text).digest(),
  }));
  assert.equal(answer.KeyId, KeyId);
  assert.equal(answer.SigningAlgorithm, 'ECDSA_SHA_256');
  assert(answer.$metadata.requestId);
  assert(verify('sha256', text, publicKey, Buffer.from(answer.Signature)));
  assert(!verify('sha256', Buffer.from('another'), publicKey, Buffer.from(answer.Signature)));
}
console.log('Sign: 20 signatures verify, half RAW and half DIGEST');

const refused = async (what, command, type, from = client) => {
  await assert.rejects(from.send(command), (e) => {
    const right = typeof type === 'string' ? e instanceof KMSServiceException && e.name === type : e instanceof type;
    assert(right, `${what}: ${e.name} ${e.message}`);
    assert.notEqual(e.message, '');
    return true;
  });
  console.log(`refused: ${what} (${type.name ?? type})`);
};
const sign = (more) => new SignCommand({ KeyId, SigningAlgorithm: 'ECDSA_SHA_256', MessageType: 'DIGEST', Message: Buffer.alloc(32, 1), ...more });
await refused('a key that is not there', sign({ KeyId: '00000000-1111-2222-3333-444444444444' }), NotFoundException);
await refused('a disabled key', sign({ KeyId: disabled }), DisabledException);
await refused('a key pending deletion', sign({ KeyId: leaving }), KMSInvalidStateException);
await refused('another algorithm than the key has', sign({ KeyId: p384 }), InvalidKeyUsageException);
await refused('the public key of a symmetric key', new GetPublicKeyCommand({ KeyId: symmetric }), UnsupportedOperationException);
await refused('a dry run', sign({ DryRun: true }), DryRunOperationException);
await refused('a digest of 31 bytes', sign({ Message: Buffer.alloc(31, 1) }), 'ValidationException');
await refused('a request without a key', new GetPublicKeyCommand({}), 'ValidationException');
await refused('a request for another region', sign({}), 'InvalidSignatureException', new KMSClient({ ...settings, endpoint, region: 'eu-west-1' }));
