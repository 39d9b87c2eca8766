-- Lists the deals with a step for the worker, at most $2 of each kind:
-- * deals whose deadline is past or at most $1 seconds away;
-- * random.v1 deals whose draw is due: $3 seconds after the later of the last reveal and the round time, or with seals or an audience at
--   that time, if it is at most $1 seconds away. (The branch also reads the other draws of the last $3 seconds.);
-- * deals with seals to open, whose round is due or is due in at most $1 seconds;
-- * deals with seals whose closing is not in the log, from 3 seconds after the last commitment until the round, also if they have ended;
-- * deals with a pending certificate, except the deals $4. Such a deal is listed from 3 seconds after its end, because until
--   then the call that ended the deal may issue the certificate.
-- Returns each deal with the milliseconds until its step is due (0 or less: due now).
-- Each branch reads the clock by a scalar subquery, so that the branch reads a range of its index.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms, floor(extract(epoch FROM clock_timestamp()))::bigint AS now)
(SELECT deal_id, commit_deadline * 1000 - (SELECT ms FROM clock) FROM deals
 WHERE phase = 'COMMITTING' AND commit_deadline <= (SELECT now FROM clock) + $1::bigint ORDER BY commit_deadline LIMIT $2)
UNION ALL
(SELECT deal_id, reveal_deadline * 1000 - (SELECT ms FROM clock) FROM deals
 WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL AND reveal_deadline <= (SELECT now FROM clock) + $1::bigint
 ORDER BY reveal_deadline LIMIT $2)
UNION ALL
(SELECT deal_id, CASE WHEN seal_time IS NULL AND audience IS NULL THEN 0 ELSE greatest(reveals_closed_at, round_time) * 1000 - (SELECT ms FROM clock) END FROM deals
 WHERE phase = 'REVEALING' AND reveals_closed_at IS NOT NULL
   AND greatest(reveals_closed_at, round_time) <= (SELECT now FROM clock) + $1::bigint
   AND (seal_time IS NOT NULL OR audience IS NOT NULL OR greatest(reveals_closed_at, round_time) <= (SELECT now FROM clock) - $3::bigint)
 ORDER BY greatest(reveals_closed_at, round_time) LIMIT $2)
UNION ALL
(SELECT deal_id, seal_time * 1000 - (SELECT ms FROM clock) FROM deals d
 WHERE phase = 'REVEALING' AND seal_time IS NOT NULL AND seal_time <= (SELECT now FROM clock) + $1::bigint
   AND (SELECT s.party FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed' LIMIT 1) IS NOT NULL
 ORDER BY seal_time LIMIT $2)
UNION ALL
(SELECT deal_id, 0 FROM deals
 WHERE seal_time IS NOT NULL AND closing_leaf IS NULL AND seal_time > (SELECT now FROM clock)
   AND commits_closed_at < (SELECT now FROM clock) - 3 ORDER BY seal_time LIMIT $2)
UNION ALL
(SELECT deal_id, 0 FROM certificates WHERE leaf_index IS NULL AND created_at < (SELECT now FROM clock) - 3 AND deal_id <> ALL ($4::text[]) ORDER BY created_at LIMIT $2)
