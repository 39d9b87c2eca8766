import { element } from './dom.js';

const date = new Intl.DateTimeFormat(undefined, { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
const withYear = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

/** Formats unix seconds in local time, with the year if it is not the current one. */
export function localTime(seconds) {
  const at = new Date(seconds * 1000);
  return (at.getFullYear() === new Date().getFullYear() ? date : withYear).format(at);
}

export function duration(seconds) {
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [size, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']]) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count || (parts.length && parts.length < 2)) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(' ') || '0 s';
}

/** Formats a share as a percentage: 0.6366 as "63.7 %". */
export const percent = (part) => `${+(part * 100).toFixed(1)} %`;

/** Formats parts of a whole as percentages of one decimal that sum to 100: the largest remainders are rounded up. */
export function percents(parts) {
  const tenths = parts.map((part) => Math.floor(part * 1000 + 1e-6));
  const rest = 1000 - tenths.reduce((sum, one) => sum + one, 0);
  const order = parts.map((_, i) => i).sort((i, j) => (parts[j] * 1000 - tenths[j]) - (parts[i] * 1000 - tenths[i]));
  for (const i of order.slice(0, Math.max(rest, 0))) tenths[i]++;
  return tenths.map((one) => `${one / 10} %`);
}

/** Returns a fraction such as "5/7" as a number. */
export function ratio(share) {
  const [n, d = 1] = share.split('/').map(Number);
  return n / d;
}

/** Returns an element that isolates a name, so that its text direction does not affect the text around it. */
export const name = (text) => element('bdi', {}, text);

/** Isolates a name for an attribute, which cannot contain elements. */
export const isolated = (text) => `\u2068${text}\u2069`;

export function series(nodes, last = ' and ') {
  return nodes.flatMap((node, i) => (i === 0 ? [node] : [i === nodes.length - 1 ? last : ', ', node]));
}

/** Joins names as in "a, b and 3 more", with at most `most` names. */
export function names(labels, most = 6) {
  const shown = labels.slice(0, most).map(name);
  return series(labels.length > most ? [...shown, `${labels.length - most} more`] : shown);
}
