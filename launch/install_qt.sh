#!/usr/bin/env bash
# What EnvPool's Procgen needs of the system: the libraries QtCore and QtGui of Qt 5.
set -euo pipefail
PATH="$PATH:/sbin:/usr/sbin"
found=$(ldconfig -p)
grep -q 'libQt5Core[.]so[.]5' <<< "$found" && grep -q 'libQt5Gui[.]so[.]5' <<< "$found" && exit 0
"$(dirname "$0")/apt_install.sh" "Procgen needs Qt 5, the libraries QtCore and QtGui" libqt5core5a libqt5gui5
