"""`--engine dask`: runs on the workers of a Dask scheduler, one at a time on each, their results brought here.

A worker offers the resource `emulation` once: two runs never share a machine. A worker that dies has its run made by another;
dask counts a run once, whoever finished it. Before the first run every worker is asked what it is: another source, other
versions or a kernel without what a scenario needs is refused with all of it listed.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from testbed.errors import ExitStatus, Missing, MissingCapability, Problem, RunError, ScenarioError
from testbed.model.load import dump
from testbed.model.suite import Suite
from testbed.run import provenance, remote, results
from testbed.run.remote import Delivery, Order
from testbed.run.tasks import Ended, Task

RESOURCE = "emulation"
CONNECT_S = 20.0
POLL_S = 2.0
ALONE_S = 60.0  # without any worker: a restarted one is back by then
START = f"python -m distributed.cli.dask_worker SCHEDULER --nthreads 1 --resources {RESOURCE}=1"


class Dask:
    """As `batch.Engine`. ScenarioError when there is no scheduler; MissingCapability when workers do not fit."""

    def __init__(self, folder: Path, scheduler: str, suite: Suite, *, figures: bool) -> None:
        try:
            import distributed
        except ImportError:
            remedy = "pip install -r requirements-dask.txt in .venv"
            raise MissingCapability([Missing("distributed", "--engine dask", remedy)]) from None
        try:
            self._client = distributed.Client(scheduler, timeout=CONNECT_S)
        except (OSError, ValueError, TimeoutError) as error:
            raise ScenarioError(
                [Problem("--scheduler", 0, "", f"{scheduler}: {error}", "start one: dask scheduler")]
            ) from error
        self._wait = distributed.wait
        self._folder, self._figures = folder, figures
        self._scenarios = {member.name: member.scenario for member in suite.members}
        self.width = self._check()
        self._flying: dict[Any, Task] = {}
        self._waiting: list[Delivery] = []

    def start(self, task: Task, attempt: int) -> None:
        scenario = self._scenarios[task.member]
        spec = scenario.transport
        order = Order(dump(scenario), spec.policy_file, spec.policy_text, task.seed, task.limit_s, self._figures)
        key = f"{task.slug}-{attempt}-{uuid.uuid4().hex[:8]}"
        future = self._client.submit(remote.perform, order, key=key, pure=False, resources={RESOURCE: 1})
        self._flying[future] = task

    def next(self) -> Ended:
        try:
            future = self._finished()
        except KeyboardInterrupt:
            task = next(iter(self._flying.values()))
            return Ended(task.member, task.seed, int(ExitStatus.INTERRUPTED), "", 0.0)
        task = self._flying.pop(future)
        try:
            delivery: Delivery = future.result()
        except Exception as error:  # noqa: BLE001 - whatever a worker raised; KilledWorker when several died of it
            return Ended(task.member, task.seed, int(ExitStatus.BROKEN), "", 0.0, f"{type(error).__name__}: {error}")
        finally:
            future.release()
        path = self._keep(task, delivery)
        return Ended(task.member, task.seed, delivery.status, path, round(delivery.seconds, 1), delivery.error, delivery.host)

    def stop(self) -> None:
        """A run that is under way on a worker goes on to its end there and is dropped."""
        self._client.cancel(list(self._flying))
        self._flying.clear()

    def _finished(self) -> Any:
        seen = time.monotonic()
        while True:
            try:
                done = self._wait(list(self._flying), timeout=POLL_S, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                done = set()
            if done:
                return done.pop()
            if self._workers():
                seen = time.monotonic()
            elif time.monotonic() - seen > ALONE_S:
                raise RunError(f"no worker has been there for {ALONE_S:g} s; what has ended is kept, --resume goes on")

    def _workers(self) -> Mapping[str, Mapping[str, Any]]:
        found: Mapping[str, Mapping[str, Any]] = self._client.scheduler_info(n_workers=-1)["workers"]
        return found

    def _check(self) -> int:
        """The number of workers, when all are what we are."""
        workers = self._workers()
        if not workers:
            raise MissingCapability([Missing("workers", "--engine dask", START)])
        absent = [
            Missing(f"{at}: the resource {RESOURCE}", "--engine dask (one run at a time)", START)
            for at, one in workers.items()
            if one.get("resources", {}).get(RESOURCE) != 1
        ]
        if absent:
            raise MissingCapability(absent)
        kinds = {(one.transport.kind, one.routing): dump(one) for one in self._scenarios.values()}
        found = self._client.run(remote.describe, list(kinds.values()), on_error="return")
        here = {"source": remote.source(), "versions": provenance.versions()}
        wrong = [one for at, there in found.items() for one in differences(at, here, there)]
        if wrong:
            raise MissingCapability(wrong)
        return len(workers)

    def _keep(self, task: Task, delivery: Delivery) -> str:
        """Write the results folder that came; its path relative to the batch's folder."""
        if not delivery.run:
            return ""
        path = self._folder / task.out / _safe(delivery.run)
        for name, content in delivery.files.items():
            file = path / _safe(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
        results.write_atomically(path / "summary.json", json.dumps(summary | {"path": str(path)}, indent=2) + "\n")
        results.point_latest(path)
        return path.relative_to(self._folder).as_posix()


def differences(worker: str, here: Mapping[str, Any], there: Any) -> Sequence[Missing]:
    """What keeps a worker from standing for this machine: `there` is what `remote.describe` said, or what it raised."""
    if not isinstance(there, dict) or "error" in there:
        said = there["error"] if isinstance(there, dict) else f"{type(there).__name__}: {there}"
        return [
            Missing(
                f"{worker}: this project ({said})",
                "--engine dask",
                "start the worker in the project's directory, with its .venv",
            )
        ]
    update = "bring it to the same commit, run `make setup` there and start the worker again"
    found = []
    if there["source"] != here["source"]:
        found.append(Missing(f"{worker}: the same source", "--engine dask (one table, one version)", update))
    for name, version in here["versions"].items():
        other = there["versions"].get(name)
        if other != version and name != "iproute2":
            found.append(Missing(f"{worker}: {name} {version}, it has {other or 'none'}", "--engine dask", update))
    return found + [
        Missing(f"{worker}: {one}", "the scenario", "set that machine up, or leave it out") for one in there["missing"]
    ]


def _safe(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise RunError(f"a worker sent a file called {name}")
    return path
