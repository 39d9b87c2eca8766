// Verifies rounds of drand's scheme bls-unchained-g1-rfc9380: BLS12-381, signatures
// in G1, keys in G2. No secret is involved, so nothing here is constant-time.

import { bigEndian, concat, fromHex, sha256, toBigInt } from './bytes.js';
import { power } from './p256.js';

const P = 0x1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaabn;
const R = 0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001n; // order of G1 and G2
const X = 0xd201000000010000n; // the curve's parameter is −X
const DST = new TextEncoder().encode('BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_');

/** drand quicknet, the default beacon. */
export const QUICKNET = {
  hash: '52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971',
  key: '83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451'
    + '0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a',
  seed: 'f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e',
  genesis: 1692803367,
  period: 3,
};

const mod = (a) => ((a % P) + P) % P;
const inverse = (a) => power(mod(a), P - 2n, P);

function root(a) {
  const found = power(mod(a), (P + 1n) / 4n, P);
  return (found * found) % P === mod(a) ? found : null;
}

// ---- Fp2: [a, b] is a + b·u with u² = −1. Elements of Fp have b = 0.

const ZERO = [0n, 0n];
const plus = (x, y) => [mod(x[0] + y[0]), mod(x[1] + y[1])];
const minus = (x, y) => [mod(x[0] - y[0]), mod(x[1] - y[1])];
const times = (x, y) => [mod(x[0] * y[0] - x[1] * y[1]), mod(x[0] * y[1] + x[1] * y[0])];
const same = (x, y) => x[0] === y[0] && x[1] === y[1];

function over(x, y) {
  const n = inverse(y[0] * y[0] + y[1] * y[1]);
  return times(x, [y[0] * n, -y[1] * n]);
}

function root2([a, b]) {
  if (b === 0n) {
    const real = root(a);
    return real !== null ? [real, 0n] : [0n, root(-a)];
  }
  const n = root(a * a + b * b);
  for (const signed of n === null ? [] : [n, -n]) {
    const real = root((a + signed) * ((P + 1n) / 2n));
    if (real !== null) return [real, mod(b * inverse(2n * real))];
  }
  return null;
}

// ---- Points are [x, y] over Fp2, null is the point at infinity.

function slope(p, q) {
  if (same(p[0], q[0])) return over(times(times(p[0], p[0]), [3n, 0n]), plus(p[1], p[1]));
  return over(minus(q[1], p[1]), minus(q[0], p[0]));
}

function add(p, q) {
  if (!p || !q) return p ?? q;
  if (same(p[0], q[0]) && !same(p[1], q[1])) return null;
  const m = slope(p, q);
  const x = minus(minus(times(m, m), p[0]), q[0]);
  return [x, minus(times(m, minus(p[0], x)), p[1])];
}

function multiple(k, p) {
  let total = null;
  for (const bit of k.toString(2)) {
    total = add(total, total);
    if (bit === '1') total = add(total, p);
  }
  return total;
}

const negated = ([x, y]) => [x, minus(ZERO, y)];

const G2 = [
  [0x024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8n,
    0x13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7en],
  [0x0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801n,
    0x0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab3f370d275cec1da1aaa9075ff05f79ben],
];

/** Decodes a compressed point of 48 (G1) or 96 bytes (G2). Returns null if it is malformed or not in the group of order R. */
function point(encoded) {
  const flags = encoded[0] >> 5;
  const high = toBigInt(encoded.slice(0, 48)) & ((1n << 381n) - 1n);
  const inG2 = encoded.length === 96;
  const x = inG2 ? [toBigInt(encoded.slice(48)), high] : [high, 0n];
  if ((flags !== 4 && flags !== 5) || x.some((part) => part >= P)) return null;
  const y = root2(plus(times(times(x, x), x), [4n, inG2 ? 4n : 0n]));
  if (!y || (!inG2 && y[1] !== 0n)) return null;
  const larger = (y[1] || y[0]) > P / 2n;
  const found = larger === (flags === 5) ? [x, y] : negated([x, y]);
  return multiple(R, found) === null ? found : null;
}

// ---- The hash to G1: RFC 9380, BLS12381G1_XMD:SHA-256_SSWU_RO_

/** Returns `length` uniform bytes: expand_message_xmd of RFC 9380 5.3.1. */
async function expanded(message, length) {
  const tail = concat(DST, [DST.length]);
  const first = await sha256(new Uint8Array(64), message, bigEndian(length, 2), [0], tail);
  const blocks = [await sha256(first, [1], tail)];
  for (let i = 2; i <= length / 32; i++) {
    blocks.push(await sha256(blocks.at(-1).map((byte, at) => byte ^ first[at]), [i], tail));
  }
  return concat(...blocks);
}

// RFC 9380 8.8.1: the isogenous curve y² = x³ + A·x + B, and Z.
const A = 0x144698a3b8e9433d693a02c96d4982b0ea985383ee66a8d8e8981aefd881ac98936f8da0e0f97f5cf428082d584c1dn;
const B = 0x12e2908d11688030018b12e8753eee3b2016c1f0f24f4070a0b9c14fcef35ef55a23215a316ceaa5d1cc48e98e172be0n;
const Z = 11n;
// RFC 9380 E.2: the coefficients of x_num, x_den, y_num and y_den, from degree 0 on, 96 hex digits each.
const ISOGENY = ''
  + '11a05f2b1e833340b809101dd99815856b303e88a2d7005ff2627b56cdb4e2c85610c2d5f2e62d6eaeac1662734649b717294ed3e943ab2f0588bab22147a81c7c17e75b2f6a8417'
  + 'f565e33c70d1e86b4838f2a6f318c356e834eef1b3cb83bb0d54005db97678ec1d1048c5d10a9a1bce032473295983e56878e501ec68e25c958c3e3d2a09729fe0179f9dac9edcb0'
  + '1778e7166fcc6db74e0609d307e55412d7f5e4656a8dbf25f1b33289f1b330835336e25ce3107193c5b388641d9b68610e99726a3199f4436642b4b3e4118e5499db995a1257fb3f'
  + '086eeb65982fac18985a286f301e77c451154ce9ac8895d91630c3250d7313ff01d1201bf7a74ab5db3cb17dd952799b9ed3ab9097e68f90a0870d2dcae73d19cd13c1c66f652983'
  + '0d6ed6553fe44d296a3726c38ae652bfb11586264f0f8ce19008e218f9c86b2a8da25128c1052ecaddd7f225a139ed8417b81e7701abdbe2e8743884d1117e53356de5ab275b4db1'
  + 'a682c62ef0f2753339b7c8f8c8f475af9ccb5618e3f0c88e080d3cf1f9a78fc47b90b33563be990dc43b756ce79f5574a2c596c928c5d1de4fa295f296b74e956d71986a8497e317'
  + '169b1f8e1bcfa7c42e0c37515d138f22dd2ecb803a0c5c99676314baf4bb1b7fa3190b2edc0327797f241067be390c9e10321da079ce07e272d8ec09d2565b0dfa7dccdde6787f96'
  + 'd50af36003b14866f69b771f8c285decca67df3f1605fb7b06e08c248e260e70bd1e962381edee3d31d79d7e22c837bc23c0bf1bc24c6b68c24b1b80b64d391fa9c8ba2e8ba2d229'
  + '08ca8d548cff19ae18b2e62f4bd3fa6f01d5ef4ba35b48ba9c9588617fc8ac62b558d681be343df8993cf9fa40d21b1c12561a5deb559c4348b4711298e536367041e8ca0cf0800c'
  + '0126c2588c48bf5713daa8846cb026e9e5c8276ec82b3bff0b2962fe57a3225e8137e629bff2991f6f89416f5a718cd1fca64e00b11aceacd6a3d0967c94fedcfcc239ba5cb83e19'
  + '03425581a58ae2fec83aafef7c40eb545b08243f16b1655154cca8abc28d6fd04976d5243eecf5c4130de8938dc62cd813a8e162022914a80a6f1d5f43e7a07dffdfc759a12062bb'
  + '8d6b44e833b306da9bd29ba81f35781d539d395b3532a21e0e7355f8e4e667b955390f7f0506c6e9395735e9ce9cad4d0a43bcef24b8982f7400d24bc4228f11c02df9a29f6304a5'
  + '0772caacf16936190f3e0c63e0596721570f5799af53a1894e2e073062aede9cea73b3538f0de06cec2574496ee84a3a14a7ac2a9d64a8b230b3f5b074cf01996e7f63c21bca68a8'
  + '1996e1cdf9822c580fa5b9489d11e2d311f7d99bbdcc5a5e0a10ecf6ada54f825e920b3dafc7a3cce07f8d1d7161366b74100da67f39883503826692abba43704776ec3a79a1d641'
  + '095fc13ab9e92ad4476d6e3eb3a56680f682b4ee96f7d03776df533978f31c1593174e4b4b7865002d6384d168ecdd0a090d97c81ba24ee0259d1f094980dcfa11ad138e48a86952'
  + '2b52af6c956543d3cd0c7aee9b3ba3c2be9845719707bb33134996a104ee5811d51036d776fb46831223e96c254f383d0f906343eb67ad34d6c56711962fa8bfe097e75a2e41c696'
  + '00cc786baa966e66f4a384c86a3b49942552e2d658a31ce2c344be4b91400da7d26d521628b00523b8dfe240c72de1f601f86376e8981c217898751ad8746757d42aa7b90eeb791c'
  + '09e4a3ec03251cf9de405aba9ec61deca6355c77b0e5f4cb08cc03fdefe0ff135caf4fe2a21529c4195536fbe3ce50b879833fd221351adc2ee7f8dc099040a841b6daecf2e8fedb'
  + '16603fca40634b6a2211e11db8f0a6a074a7d0d4afadb7bd76505c3d3ad5544e203f6326c95a807299b23ab13633a5f004ab0b9bcfac1bbcb2c977d027796b3ce75bb8ca2be184cb'
  + '5231413c4d634f3747a87ac2460f415ec961f8855fe9d6f20987c8d5333ab86fde9926bd2ca6c674170a05bfe3bdd81ffd038da6c26c842642f64550fedfe935a15e4ca31870fb29'
  + '09fc4018bd96684be88c9e221e4da1bb8f3abd16679dc26c1e8b6e6a1f20cabe69d65201c78607a360370e577bdba5870e1bba7a1186bdb5223abde7ada14a23c42a0ca7915af6fe'
  + '06985e7ed1e4d43b9b3f7055dd4eba6f2bafaaebca731c3019713e47937cd1be0dfd0b8f1d43fb93cd2fcbcb6caf493fd1183e416389e61031bf3a5cce3fbafce813711ad011c132'
  + '18b46a908f36f6deb918c143fed2edcc523559b8aaf0c2462e6bfe7f911f643249d9cdf41b44d606ce07c8a4d0074d8e0b182cac101b9399d155096004f53f447aa7b12a3426b08e'
  + 'c02710e807b4633f06c851c1919211f20d4c04f00b971ef80245a394ad1eca9b72fc00ae7be315dc757b3b080d4c158013e6632d3c40659cc6cf90ad1c232a6442d9d3f5db980133'
  + '05c129645e44cf1102a159f748c4a3fc5e673d81d7e86568d9ab0f5d396a7ce46ba1049b6579afb7866b1e715475224b15e6be4e990f03ce4ea50b3b42df2eb5cb181d8f84965a39'
  + '57add4fa95af01b2b665027efec01c7704b456be69c8b60416112c4c3a9c98b252181140fad0eae9601a6de578980be6eec3232b5be72e7a07f3688ef60c206d01479253b03663c1'
  + '1962d75c2381201e1a0cbd6c43c348b885c84ff731c4d59ca4a10356f453e01f78a4260763529e3532f6102c2e49a03d058df3306640da276faaae7d6e8eb15778c4855551ae7f31'
  + '0c35a5dd279cd2eca6757cd636f96f891e2538b53dbf67f216b7d288798e5395f20d23bf89edb4d1d115c5dbddbcd30e123da489e726af41727364f2c28297ada8d26d98445f5416'
  + '0be0e079545f43e4b00cc912f8228ddcc6d19c9f0f69bbb0542eda0fc9dec916a20b15dc0fd2ededda39142311a5001d08d9e5297186db2d9fb266eaac783182b70152c65550d881'
  + 'c5ecd87b6f0f5a6449f38db9dfa9cce202c6477faaf9b7ac166007c08a99db2fc3ba8734ace9824b5eecfdfa8d0cf8ef5dd365bc400a0051d5fa9c01a58b1fb93d1a1399126a775c'
  + '16a3ef08be3ea7ea03bcddfabba6ff6ee5a4375efa1f4fd7feb34fd206357132b920f5b00801dee460ee415a15812ed91866c8ed336c61231a1be54fd1d74cc4f9fb0ce4c6af5920'
  + 'abc5750c4bf39b4852cfe2f7bb9248836b233d9d55535d4a167a55cda70a6e1cea820597d94a84903216f763e13d87bb5308592e7ea7d4fbc7385ea3d529b35e346ef48bb8913f55'
  + '04d2f259eea405bd48f010a01ad2911d9c6dd039bb61a6290e591b36e636a5c871a5c29f4f83060400f8b49cba8f6aa80accbb67481d033ff5852c1e48c50c477f94ff8aefce42d2'
  + '8c0f9a88cea7913516f968986f7ebbea9684b529e25610920ad6b9514c767fe3c3613144b45f1496543346d98adf02267d5ceef9a00d9b8693000763e3b90ac11e99b138573345cc'
  + '02660400eb2e4f3b628bdd0d53cd76f2bf565b94e72927c1cb748df27942480e420517bd8714cc80d1fadc1326ed06f70e0fa1d816ddc03e6b24255e0d7819c171c40f65e273b853'
  + '324efcd6356caa205ca2f570f13497804415473a1d634b8f';
const coefficients = ISOGENY.match(/.{96}/g).map((digits) => BigInt(`0x${digits}`));
const polynomials = [coefficients.slice(0, 12), [...coefficients.slice(12, 22), 1n], coefficients.slice(22, 38), [...coefficients.slice(38, 53), 1n]];

/** Returns the point of G1's curve for a field element: map_to_curve of RFC 9380 6.6.2 and 6.6.3. */
function mapped(u) {
  const v = mod(Z * u * u);
  const tail = mod(v * v + v);
  let x = tail ? mod(-B * inverse(A) * (1n + inverse(tail))) : mod(B * inverse(Z * A));
  let y = root(x ** 3n + A * x + B);
  if (y === null) {
    x = mod(v * x);
    y = root(x ** 3n + A * x + B);
  }
  if ((u & 1n) !== (y & 1n)) y = P - y;
  const [xNum, xDen, yNum, yDen] = polynomials.map((polynomial) => polynomial.reduceRight((value, c) => mod(value * x + c), 0n));
  return [[mod(xNum * inverse(xDen)), 0n], [mod(y * yNum * inverse(yDen)), 0n]];
}

async function hashed(message) {
  const random = await expanded(message, 128);
  const [a, b] = [0, 64].map((at) => mapped(mod(toBigInt(random.slice(at, at + 64)))));
  return multiple(1n + X, add(a, b));
}

// ---- The pairing. Elements of Fp12 are polynomials in w with w¹² = 2·w⁶ − 2, so that u = w⁶ − 1.

function product(f, g) {
  const terms = new Array(23).fill(0n);
  f.forEach((a, i) => {
    if (a) g.forEach((b, j) => { terms[i + j] += a * b; });
  });
  for (let k = 22; k > 11; k--) {
    terms[k - 6] += 2n * terms[k];
    terms[k - 12] -= 2n * terms[k];
  }
  return terms.slice(0, 12).map(mod);
}

const ONE = [1n, ...new Array(11).fill(0n)];

/**
 * Returns the line of slope m through the point t of the twist, evaluated at p and multiplied by w³. The final
 * exponentiation removes the factor w³.
 */
function line(m, t, p) {
  const value = new Array(12).fill(0n);
  for (const [at, [a, b]] of [[0, minus(times(m, t[0]), t[1])], [2, minus(ZERO, times(m, p[0]))], [3, p[1]]]) {
    value[at] = mod(a - b);
    value[at + 6] = b;
  }
  return value;
}

/**
 * Runs the Miller loop for p in G1 and q in G2. The loop runs over X instead of −X, so it returns the conjugate of the
 * true value. The final exponentiation maps the conjugate to 1 exactly if it maps the true value to 1.
 */
function miller(p, q) {
  let [f, t] = [ONE, q];
  for (const bit of X.toString(2).slice(1)) {
    f = product(product(f, f), line(slope(t, t), t, p));
    t = add(t, t);
    if (bit === '1') {
      f = product(f, line(slope(t, q), t, p));
      t = add(t, q);
    }
  }
  return f;
}

/** Reports whether a round's signature (hex, 48 bytes in G1) verifies under the public key (hex, 96 bytes in G2). */
export async function signed(key, round, signature) {
  if (typeof key !== 'string' || typeof signature !== 'string') return false;
  const id = [key, round, signature].join();
  if (!verdicts.has(id)) {
    if (verdicts.size >= 100) verdicts.delete(verdicts.keys().next().value); // drops the oldest: a Map keeps the order of insertion
    const verdict = verified(key, round, signature);
    verdicts.set(id, verdict);
    verdict.catch(() => verdicts.delete(id));
  }
  return verdicts.get(id);
}

const verdicts = new Map(); // cached promises, because a verification takes most of a second

async function verified(key, round, signature) {
  if (!/^[0-9a-f]{192}$/.test(key) || !/^[0-9a-f]{96}$/.test(signature)) return false;
  const [of, by] = [point(fromHex(key)), point(fromHex(signature))];
  if (!of || !by) return false;
  const message = await hashed(await sha256(bigEndian(round, 8)));
  const f = product(miller(by, negated(G2)), miller(message, of));
  let raised = ONE;
  for (const bit of ((P ** 12n - 1n) / R).toString(2)) {
    raised = product(raised, raised);
    if (bit === '1') raised = product(raised, f);
  }
  return raised.every((c, i) => c === ONE[i]);
}

// ---- The value of the pairing, for timelock.js. A verification needs only whether it is 1.

const conjugate = (f) => f.map((c, i) => (i % 2 ? mod(-c) : c)); // f to the power P⁶, because w to this power is −w

function raised(f, exponent) {
  let out = ONE;
  for (const bit of exponent.toString(2)) {
    out = product(out, out);
    if (bit === '1') out = product(out, f);
  }
  return out;
}

let wP; // w to the power P: γ·w with γ in Fp2

/** Returns f to the power P. The coefficients are in Fp, so only the powers of w change. */
function frobenius(f) {
  wP ??= raised([0n, 1n, ...new Array(10).fill(0n)], P);
  return f.reduceRight((sum, c) => {
    const next = product(wP, sum);
    next[0] = mod(next[0] + c);
    return next;
  }, new Array(12).fill(0n));
}

/** Returns e(p, q) for p in G1 and q in G2, to the power that gnark-crypto, kyber and noble compute: 3·(P¹² − 1)/R. */
export function pairing(p, q) {
  let f = conjugate(miller(p, q));
  // 1/f is the product of f's other eleven conjugates over Fp, divided by the norm of f, which is in Fp.
  let [others, turned] = [ONE, f];
  for (let k = 1; k < 12; k++) {
    turned = frobenius(turned);
    others = product(others, turned);
  }
  const norm = inverse(product(f, others)[0]);
  f = product(conjugate(f), others.map((c) => mod(c * norm))); // to the power P⁶ − 1
  f = product(frobenius(frobenius(f)), f); // to the power P² + 1; from here on 1/f is the conjugate of f
  // Hayashida, Hayasaka, Teruya (eprint 2020/875): 3·(P⁴ − P² + 1)/R = (x − 1)²·(x + P)·(x² + P² − 1) + 3 with x = −X.
  const a = raised(raised(f, X + 1n), X + 1n);
  const b = product(conjugate(raised(a, X)), frobenius(a));
  const c = product(product(raised(raised(b, X), X), frobenius(frobenius(b))), conjugate(b));
  return product(c, product(f, product(f, f)));
}

/** Encodes a pairing value: twelve coefficients of the tower Fp2, Fp6, Fp12 from the highest to the lowest, 48 bytes each. */
export function encodedValue(f) {
  const parts = [];
  for (const odd of [1, 0]) {
    for (const k of [4, 2, 0]) parts.push(f[k + odd + 6], mod(f[k + odd] + f[k + odd + 6])); // a − b + b·w⁶ is a + b·u
  }
  return concat(...parts.map((c) => bigEndian(c, 48)));
}

/** Encodes a point of G2 in 96 bytes. */
export function compressed([x, y]) {
  const out = concat(bigEndian(x[1], 48), bigEndian(x[0], 48));
  out[0] |= (y[1] || y[0]) > P / 2n ? 0xa0 : 0x80;
  return out;
}

export { G2, R, hashed, multiple, point };
