"""`make gpu-proof [DEVICE=cuda] [PART=same]`: all checks that need a GPU, the most important ones first.

The checks form six parts of at most nine minutes each: same, speed, end_to_end, training, race, breakout. The same
command given again skips the checks that have passed; a check that fails is reported, and the others still run. A table
and `<out>/gpu-proof.json` hold the outcome of each, a folder of each check what its commands said. The checks of `same`
measure no time: `--jobs` of them run at once. The part race wants PUREJAXRL, CLEANRL and LEANRL=<its repository>, and
PEER_PYTHON=<a Python with their packages>. `DEVICE=cpu` rehearses all checks with few iterations.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, write_json
from ppo_bench.common.values import file_name
from ppo_bench.runs.provenance import provenance
from tests.gpu_checks import PART_SECONDS, Check, Figures, LeftOut, Unshown
from tests.gpu_parts import Proof
from tests.training import ROOT


def main() -> int:
    """Make the checks that have not passed, print what came of all, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", choices=["same", "speed", "training", "end_to_end", "race", "breakout"])
    parser.add_argument("--jobs", type=int, default=1, help="checks of the part same that run at once")
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu-proof"))
    options = parser.parse_args()
    proof = Proof(options.device, few=options.device == "cpu")
    done, rows = options.out / file_name(options.device), []
    for part, checks in proof.parts().items():
        jobs = options.jobs if part == "same" else 1
        came = _came(checks, done / part, jobs, asked_for=options.part in (None, part))
        rows += [{"part": part, "check": check.name, **row} for check, row in zip(checks, came, strict=True)]
    print(f"\n{'part':<12}{'check':<50}{'seconds':>8}  came of it")
    for row in rows:
        print(f"{row['part']:<12}{row['check']:<50}{row.get('seconds', 0):>8.0f}  {row['came of it']}")
    about = {"schema_version": SCHEMA_VERSION, "device": options.device, "checks": rows} | provenance()
    write_json(options.out / "gpu-proof.json", about)
    if options.device != "cpu":
        (machines := ROOT / "docs" / "machines").mkdir(exist_ok=True)
        write_json(machines / f"{file_name(str(about['hardware']['gpu'] or options.device))}.json", about)
    print(options.out / "gpu-proof.json")
    asked = [row["came of it"] for row in rows if options.part in (None, row["part"])]
    return int(not all(came.startswith(("shown", "left out")) for came in asked))


def _came(checks: Sequence[Check], folder: Path, jobs: int, asked_for: bool) -> list[Figures]:
    """Outcomes of the checks of a part, of which `jobs` are made at once; `folder` has those made earlier."""
    started = time.monotonic()

    def of(check: Check) -> Figures:
        file = folder / f"{file_name(check.name)}.json"
        if file.exists():
            return json.loads(file.read_text())
        if not asked_for:
            return {"came of it": "not made"}
        return _made(check, file, late=time.monotonic() - started > PART_SECONDS)

    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        return list(pool.map(of, checks))


def _made(check: Check, file: Path, late: bool) -> Figures:
    """Outcome of a check; kept if it is shown, so that it is not made again."""
    if late:
        return {"came of it": "not made: the part's time is over; run it again"}
    started, folder = time.perf_counter(), file.with_suffix("")
    if not check.goes_on:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        row: Figures = {"came of it": "shown", "figures": check.show(folder)}
    except LeftOut as reason:
        row = {"came of it": f"left out: {reason}"}
    except (Unshown, OSError, ValueError, KeyError, ConfigError, subprocess.SubprocessError) as error:
        row = {"came of it": f"failed: {' '.join(str(error).split())}"}
    row["seconds"] = time.perf_counter() - started
    print(f"{check.name}: {row['came of it']}", flush=True)
    if row["came of it"] == "shown":
        write_json(file, row)
    return row


if __name__ == "__main__":
    sys.exit(main())
