-- One row of the answer is one live member that this one disagrees with; none:
-- this one was written, where $6 is true. Run after the lock, in its transaction.
WITH against AS (
    SELECT name, kind, signs_with, $3 = ANY(accepts) AS accepts_mine,
           extract(epoch FROM clock_timestamp() - seen_at)::float8 AS age
    FROM replica.members
    WHERE name <> $1
      -- One from far ahead is of a clock that was set back, or forged.
      AND abs(extract(epoch FROM clock_timestamp() - seen_at)) < $5
      AND NOT (signs_with = ANY($4) AND $3 = ANY(accepts))
), announced AS (
    INSERT INTO replica.members (name, kind, signs_with, accepts, seen_at)
    SELECT $1, $2, $3, $4::text[], clock_timestamp()
    WHERE $6 AND NOT EXISTS (SELECT FROM against)
    ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at
)
SELECT name, kind, signs_with, accepts_mine, age FROM against ORDER BY name
