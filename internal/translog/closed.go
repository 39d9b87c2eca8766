package translog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/signing"
)

// CheckClosed returns an error where one of the closed keys signed a head above
// its tree size and is not disowned: certificates that were good would stop being
// so. It looks at the first heads above that size, at most as many.
func CheckClosed(ctx context.Context, pool *pgxpool.Pool, keys []signing.Key, most int64) error {
	if err := schema.Current(ctx, pool); err != nil {
		return err
	}
	for _, key := range keys {
		if !key.Closed() || key.Disowned {
			continue
		}
		by, err := signing.NewVerifyingKey(key.PublicKey)
		if err != nil {
			return err
		}
		rows, err := pool.Query(ctx, sqlHeadsAbove, *key.TreeSize, most)
		if err != nil {
			return fromDatabase(err)
		}
		defer rows.Close()
		for rows.Next() {
			head, err := scanHead(rows)
			if err != nil {
				return err
			}
			if by.Verify(head.Message(), head.Signature) == nil {
				return fmt.Errorf("the key set closes %s at tree size %d, but that key signed the head of size %d: give the key a tree_size of %d or more, or \"disowned\":true if it was stolen and that head is not to count",
					key.PublicKey, *key.TreeSize, head.TreeSize, head.TreeSize)
			}
		}
		if err := rows.Err(); err != nil {
			return fromDatabase(err)
		}
	}
	return nil
}
