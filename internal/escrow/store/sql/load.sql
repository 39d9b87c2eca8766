-- Counts the deals that have not ended and the pending certificates. Each part reads a partial index of these rows, so the cost
-- does not grow with the deals that have ended. A draw is due $1 seconds after the later of the last reveal and the round time, with seals or an audience at once.
-- An age is the seconds since the oldest deal or certificate was created; 0: there is none. The last two columns are the seconds
-- since the earliest deadline passed, and since the earliest draw or beacon round of seals became due; 0: none is overdue. Seals
-- that are not opened keep their deal from its deadline.
WITH clock AS MATERIALIZED (SELECT extract(epoch FROM clock_timestamp())::float8 AS now),
committing AS (SELECT count(*) AS deals, min(created_at) AS oldest, min(commit_deadline) AS due FROM deals WHERE phase = 'COMMITTING'),
revealing AS (SELECT count(*) AS deals, min(created_at) AS oldest,
                     min(CASE WHEN seal_time IS NULL OR (SELECT s.party FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed' LIMIT 1) IS NULL THEN reveal_deadline END) AS due
              FROM deals d WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL),
opening AS (SELECT min(seal_time) AS due FROM deals d WHERE phase = 'REVEALING' AND seal_time IS NOT NULL
              AND (SELECT s.party FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed' LIMIT 1) IS NOT NULL),
drawing AS (SELECT count(*) AS deals, min(created_at) AS oldest, min(greatest(reveals_closed_at, round_time) + CASE WHEN seal_time IS NULL AND audience IS NULL THEN $1::bigint ELSE 0 END) AS due
            FROM deals WHERE phase = 'REVEALING' AND reveals_closed_at IS NOT NULL),
pending AS (SELECT count(*) AS certificates, min(created_at) AS oldest FROM certificates WHERE leaf_index IS NULL)
SELECT committing.deals, coalesce(now - committing.oldest, 0),
       revealing.deals + drawing.deals, coalesce(now - least(revealing.oldest, drawing.oldest), 0),
       certificates, coalesce(now - pending.oldest, 0),
       greatest(0, coalesce(now - least(committing.due, revealing.due), 0)), greatest(0, coalesce(now - least(drawing.due, opening.due), 0))
FROM clock, committing, revealing, drawing, opening, pending
