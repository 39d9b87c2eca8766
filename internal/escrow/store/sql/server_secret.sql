SELECT fingerprint, former, since FROM server_secret WHERE singleton
