#!/usr/bin/env bash
# What tests/test_report_page.py needs: Chromium, which it runs without a display.
set -euo pipefail
for program in chromium chromium-browser google-chrome; do
    command -v "$program" > /dev/null && exit 0
done
install="apt-get install -y --no-install-recommends chromium fonts-liberation"
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "make test needs Chromium, in which it opens a report; on Debian, as root: $install" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! (apt-get update && $install) > "$log" 2>&1; then
    tail "$log" >&2
    exit 1
fi
rm "$log"
