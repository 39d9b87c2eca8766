-- Stores that a quorum of witnesses has cosigned a tree of $1 leaves, unless a larger one is stored.
INSERT INTO certified AS c (size) VALUES ($1) ON CONFLICT (singleton) DO UPDATE SET size = excluded.size WHERE c.size < excluded.size
