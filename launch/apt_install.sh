#!/usr/bin/env bash
# apt_install.sh WHY PACKAGE...: install Debian packages as root, or say WHY they are needed and how to do it.
set -euo pipefail
why=$1 install="apt-get install -y --no-install-recommends ${*:2}"
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "$why; on Debian, as root: $install" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm "$log"' EXIT
if ! (apt-get update && $install) > "$log" 2>&1; then
    tail "$log" >&2
    exit 1
fi
