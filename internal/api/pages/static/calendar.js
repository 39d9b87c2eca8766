// The times of a deal as a calendar file (iCalendar, RFC 5545). It holds no link, because a link is the key to a seat.

const stamp = (seconds) => new Date(seconds * 1000).toISOString().replace(/[-:]|\.\d+/g, '');
const text = (words) => words.replace(/[\\;,]/g, '\\$&').replace(/\s+/g, ' ');
const folded = (line) => line.match(/.{1,18}/gu).join('\r\n '); // at most 73 bytes a line

/** Returns the file. events: [what, unix seconds] each; an alarm goes off an hour before. */
export const calendarOf = (deal, title, events, now = Date.now() / 1000) => ['BEGIN:VCALENDAR', 'VERSION:2.0', 'PRODID:-//Fairpact//EN', ...events.flatMap(([what, at], i) => [
  'BEGIN:VEVENT', `UID:${deal}-${i}@fairpact`, `DTSTAMP:${stamp(now)}`, `DTSTART:${stamp(at)}`, `SUMMARY:${text(`${what}: ${title}`)}`,
  'BEGIN:VALARM', 'ACTION:DISPLAY', `DESCRIPTION:${text(what)}`, 'TRIGGER:-PT1H', 'END:VALARM', 'END:VEVENT']), 'END:VCALENDAR'].map((line) => `${folded(line)}\r\n`).join('');
