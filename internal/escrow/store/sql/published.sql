SELECT payload, leaf_index FROM certificates WHERE leaf_index = ANY ($1::bigint[]) ORDER BY leaf_index
