#!/usr/bin/env bash
# install-missing.sh NEED...: installs each NEED that this Debian or Ubuntu machine lacks,
# with apt. A NEED is postgres, pgbench, redis, gcc, softhsm, python3, chromium, prometheus
# (with promtool), make or git. If all are installed, it does nothing and needs no network.
#
# Each of the packages postgresql and prometheus starts a default server. This repository
# does not use these default servers. The servers that it starts use other ports and directories.
set -euo pipefail

has() {
  case $1 in
  postgres)
    local bin
    for bin in "$(dirname "$(command -v postgres || echo /nonexistent/postgres)")" /usr/local/bin /usr/local/pgsql/bin /usr/lib/postgresql/*/bin; do
      if "$bin/postgres" --version && "$bin/initdb" --version; then return 0; fi
    done
    return 1
    ;;
  pgbench)
    local bin
    for bin in /usr/local/bin /usr/local/pgsql/bin /usr/lib/postgresql/*/bin; do
      if "$bin/pgbench" --version; then return 0; fi
    done
    pgbench --version
    ;;
  redis) redis-server --version ;;
  gcc) printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | gcc -x c -o /dev/null - ;;
  softhsm) softhsm2-util --version && ls /usr/lib/softhsm/libsofthsm2.so ;;
  python3) python3 -c 'import hashlib, json' ;;
  *) command -v "$1" ;;
  esac >/dev/null 2>&1
}

packages_of() {
  case $1 in
  postgres) echo postgresql ;;
  pgbench) echo postgresql postgresql-contrib ;; # with pg_stat_statements
  redis) echo redis-server ;;
  gcc) echo gcc libc6-dev ;;
  softhsm) echo softhsm2 ;;
  *) echo "$1" ;;
  esac
}

packages=()
for need in "$@"; do
  # shellcheck disable=SC2207 # package names hold no spaces
  has "$need" || packages+=($(packages_of "$need"))
done
[ ${#packages[@]} -gt 0 ] || exit 0

by_hand="apt-get update && apt-get install -y ${packages[*]}"
if ! command -v apt-get >/dev/null; then
  echo "This machine lacks these packages (names as in Debian): ${packages[*]}. It also has no apt-get. Install the packages with the machine's own package manager." >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "This machine lacks these packages: ${packages[*]}. As root, run: $by_hand" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}
echo "installing ${packages[*]} with apt (a minute or two)"
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# If apt update fails, continue: the existing package lists may be recent enough.
if ! { apt update || true; apt install -y --no-install-recommends "${packages[@]}"; } >"$said" 2>&1; then
  tail -n 30 "$said" >&2
  echo "Could not install these packages: ${packages[*]}. As root, run: $by_hand" >&2
  exit 1
fi
for need in "$@"; do
  if ! has "$need"; then
    echo "$need still does not work after: $by_hand" >&2
    exit 1
  fi
done
