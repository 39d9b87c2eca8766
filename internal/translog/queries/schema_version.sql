SELECT coalesce(max(version_id), 0) FROM translog.goose_db_version WHERE is_applied
