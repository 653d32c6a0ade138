#!/usr/bin/env bash
# uv.sh ARGUMENT...: uv for .venv, which finds packages where pip would. It is that on PATH, or else pip installs it.
set -euo pipefail
settings=$(.venv/bin/python -m pip config list)
setting() { # NAME SEPARATOR: a list in pip's settings; those of the environment are listed first and win
    sed -nE "s/^(:env:|global|install)\.$1='(.*)'$/\2/p" <<< "$settings" | head -n 1 | sed 's/\\n/ /g' | xargs | tr ' ' "$2"
}
find_links=${UV_FIND_LINKS-$(setting find-links ,)}
default=${UV_DEFAULT_INDEX-$(setting index-url ' ')}
indexes=${UV_INDEX-$(setting extra-index-url ' ')}
[ -z "$find_links" ] || export UV_FIND_LINKS=$find_links
[ -z "$default" ] || export UV_DEFAULT_INDEX=$default
[ -z "$indexes" ] || export UV_INDEX=$indexes UV_INDEX_STRATEGY=${UV_INDEX_STRATEGY:-unsafe-best-match}
uv=$(command -v uv || echo .venv/bin/uv)
[ -x "$uv" ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
VIRTUAL_ENV=$PWD/.venv exec "$uv" "$@"
