#!/usr/bin/env bash
# What tests/test_report_page.py needs: Chromium, which it runs without a display.
set -euo pipefail
for program in chromium chromium-browser google-chrome; do
    command -v "$program" > /dev/null && exit 0
done
why="make test needs Chromium, in which it opens a report"
"$(dirname "$0")/../../launch/apt_install.sh" "$why" chromium fonts-liberation
