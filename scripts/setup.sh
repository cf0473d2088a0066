#!/usr/bin/env bash
# Installs what the tests need from the system, where it is missing: redis-server, MariaDB, a C compiler
# (for the race detector).
# Usage: scripts/setup.sh (as root, or with sudo; on macOS with Homebrew)
# Changes: system packages, nothing else. The tests start servers of their own; no system service is needed.
set -euo pipefail

# have NAME...: whether one of the programs exists. Servers are not on everybody's PATH.
have() {
  local name
  for name in "$@"; do
    PATH="$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/bin:/usr/local/bin" command -v "$name" >/dev/null && return
  done
  return 1
}

apt_packages=() brew_packages=()
have redis-server || { apt_packages+=(redis-server) brew_packages+=(redis); }
have mariadbd mysqld || { apt_packages+=(mariadb-server) brew_packages+=(mariadb); }
have cc gcc clang || { apt_packages+=(gcc libc6-dev) brew_packages+=(gcc); }

if [ ${#apt_packages[@]} -eq 0 ]; then
  echo "setup: everything is installed"
  exit 0
fi

apt_install() {
  # RUNLEVEL=1 keeps the packages' scripts from starting the services.
  "$@" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y --no-install-recommends "${apt_packages[@]}"
}

if have apt-get && [ "$(id -u)" -eq 0 ]; then
  apt_install || { apt-get update && apt_install; } # Without package lists the first try fails.
elif have apt-get && have sudo; then
  apt_install sudo || { sudo apt-get update && apt_install sudo; }
elif have brew; then
  brew install "${brew_packages[@]}"
else
  echo "setup: install these first: ${apt_packages[*]} (Debian, Ubuntu) or ${brew_packages[*]} (Homebrew)" >&2
  exit 1
fi
