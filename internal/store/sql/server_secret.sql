SELECT fingerprint FROM server_secret WHERE singleton
