#!/usr/bin/env bash
# What EnvPool's Procgen needs of the system: the libraries QtCore and QtGui of Qt 5.
set -euo pipefail
PATH="$PATH:/sbin:/usr/sbin"
found=$(ldconfig -p)
grep -q 'libQt5Core[.]so[.]5' <<< "$found" && grep -q 'libQt5Gui[.]so[.]5' <<< "$found" && exit 0
install="apt-get install -y --no-install-recommends libqt5core5a libqt5gui5"
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "Procgen needs Qt 5, the libraries QtCore and QtGui; on Debian, as root: $install" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! (apt-get update && $install) > "$log" 2>&1; then
    tail "$log" >&2
    exit 1
fi
rm "$log"
