package translog

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// tags finds leaves with two tags, and tags of no leaf that was read.
func (f *fsck) tags() error {
	tagged := make([]byte, f.at.size/8+1) // a bit of each leaf
	last, first := []byte{}, int64(-1)
	for {
		rows, err := f.tx.Query(f.ctx, sqlFsckTags, last, fsckPage)
		if err != nil {
			return err
		}
		read, leaf := 0, int64(0)
		_, err = pgx.ForEachRow(rows, []any{&last, &leaf}, func() error {
			read++
			switch {
			case leaf < 0 || leaf >= f.at.size:
				if first < 0 || leaf < first {
					first = leaf
				}
			case tagged[leaf/8]&(1<<(leaf%8)) != 0:
				f.find(fmt.Sprint("leaf ", leaf), "it has two tags")
			default:
				tagged[leaf/8] |= 1 << (leaf % 8)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if read < fsckPage {
			break
		}
	}
	if first >= 0 {
		f.find("tags", beyond, first, f.at.size)
	}
	return nil
}
