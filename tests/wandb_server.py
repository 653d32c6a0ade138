"""A small server that speaks enough of Weights & Biases' protocol for a run to be made, logged to and continued."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WandbServer(ThreadingHTTPServer):
    """Keeps the rows of one run in `history`. If `hangs`, it makes the run and never answers when it is given rows."""

    daemon_threads = True

    def __init__(self, hangs: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hangs, self.history, self.run = hangs, list[dict[str, Any]](), dict[str, Any]()
        self.summary: dict[str, Any] = {}
        self.over = threading.Event()

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that send wandb here, with rows every second instead of every 15."""
        address = f"http://127.0.0.1:{self.server_port}"
        often = {"WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "1"}
        return {"WANDB_BASE_URL": address, "WANDB_API_KEY": "0" * 40} | often

    def settle(self) -> None:
        """Return when no more rows come: wandb's own process uploads what a killed run has logged."""
        count = -1
        while count != (count := len(self.history)):
            time.sleep(3.0)

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The answer to a query of its GraphQL interface."""
        project = {"id": "cA==", "name": "p", "entity": {"id": "ZQ==", "name": "e"}}
        if "upsertBucket" in query:
            self.run = {"id": "aWQ=", "name": variables.get("name"), "displayName": "d", "project": project}
            return {"upsertBucket": {"bucket": {**self.run, "historyLineCount": len(self.history)}, "inserted": True}}
        if "RunResumeStatus" in query:
            return {"model": {"id": "cA==", "name": "p", "bucket": self._resumed()} if self.run else None}
        if "createRunFiles" in query:
            return {"createRunFiles": {"runID": "aWQ=", "uploadHeaders": [], "files": []}}
        return {}

    def _resumed(self) -> dict[str, Any]:
        tail = json.dumps([json.dumps(row) for row in self.history[-1:]])
        counts = {"historyLineCount": len(self.history), "eventsLineCount": 0, "logLineCount": 0}
        state = {"historyTail": tail, "eventsTail": "[]", "config": "{}", "tags": [], "wandbConfig": '{"t": 1}'}
        return {**self.run, **counts, **state, "summaryMetrics": json.dumps(self.summary)}


class _Handler(BaseHTTPRequestHandler):
    server: WandbServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/graphql":
            given = json.loads(sent)
            query = f"{given.get('operationName')} {given.get('query')}"
            self._send({"data": self.server.answer(query, given.get("variables") or {})})
        elif self.path.endswith("/file_stream"):
            if self.server.hangs:
                self.server.over.wait()
            files = json.loads(sent).get("files") or {}
            if rows := files.get("wandb-history.jsonl"):
                self.server.history[rows["offset"] :] = map(json.loads, rows["content"])
            if summaries := files.get("wandb-summary.json"):
                self.server.summary = json.loads(summaries["content"][-1])
            self._send({})
        else:
            self._send({})

    def do_GET(self) -> None:
        self._send({})

    def _send(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def wandb_server(hangs: bool = False) -> Iterator[WandbServer]:
    """A running `WandbServer`."""
    with WandbServer(hangs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.over.set()
        server.shutdown()
