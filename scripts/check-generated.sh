#!/usr/bin/env bash
# Fails when go generate would change anything, that is, when a generated file was not committed.
# Usage: scripts/check-generated.sh
# Changes: leaves the freshly generated files in place, so that they only need to be committed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Checksums of every file that may be generated; this also works outside a git checkout.
checksums() {
  find . \( -path ./.git -o -path ./.tools -o -path ./.task -o -path ./bin -o -path ./tmp \) -prune \
    -o -type f -exec cksum {} + | sort -k 3
}

before="$(checksums)"
go generate ./...
if ! diff <(printf '%s\n' "$before") <(checksums); then
  echo "check-generated: the files above were out of date; commit what go generate ./... has written" >&2
  exit 1
fi
