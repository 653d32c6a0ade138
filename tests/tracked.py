"""Readers of trackers' files (TensorBoard's events, Weights & Biases' records)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2 as messages


def events(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format, blocks of 32 KiB with pieces behind headers of 7 bytes."""
    data, at, part = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (room := 32768 - at % 32768) < 7:
            at += room
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part = (part if kind in (3, 4) else b"") + data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield messages.Record.FromString(part)  # type: ignore[attr-defined]


def history(file: Path) -> list[dict[str, Any]]:
    return [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in wandb_records(file)
        if record.WhichOneof("record_type") == "history"
    ]
