"""The workers of a run on Ray: started, given their files, watched while they train, and dismissed."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from contradpp.distributed.shards import FileOf, assign
from contradpp.distributed.worker import Columns, Learned, Task, Worker
from contradpp.errors import ClusterError, ContradppError

log = logging.getLogger("contradpp")
SECONDS_TO_START = 60.0  # that a worker gets at least, if there is room for it: it loads its kernels first
SECONDS_TO_LOAD = 10.0  # times the time limit
Told = Callable[[int, int, int, list[dict[str, Any]]], None]


class Crew:
    """The workers of a run, the files of each, and what to do when one is lost.

    Parameters
    ----------
    ray : module
    files : the files to share out
    columns : their columns
    task : Task
    told : callable, optional
        Gets the first worker's progress now and then.
    """

    def __init__(self, ray: Any, files: Sequence[FileOf], columns: Columns, task: Task, told: Told | None) -> None:
        self._ray, self._files, self._columns = ray, list(files), columns
        self._task, self._timeout, self._told = task, task.timeout, told
        self._workers: list[Any] = []

    def fill(self, wanted: int) -> None:
        """Start workers until there are so many, or as many as the cluster has room for, and give them their files."""
        missing = wanted - len(self._workers)
        has_room = self._ray.available_resources().get("CPU", 0) >= missing
        seconds = max(self._timeout, SECONDS_TO_START) if has_room else self._timeout
        actor = self._ray.remote(num_cpus=1, max_restarts=0, max_concurrency=2)(Worker)
        self._workers += [actor.remote() for _ in range(missing)]
        ready = self._answers([worker.prepare.remote(self._task) for worker in self._workers], seconds)
        for worker, answer in zip(self._workers, ready, strict=True):
            if isinstance(answer, BaseException):
                self._ray.kill(worker)
        self._workers = [w for w, answer in zip(self._workers, ready, strict=True) if isinstance(answer, int)]
        failures = [a for a in ready if isinstance(a, BaseException) and not isinstance(a, TimeoutError)]
        if failures and isinstance(failures[0], ContradppError) and not isinstance(failures[0], ClusterError):
            raise failures[0]
        if not self._workers:
            why = str(failures[0]) if failures else f"none within {seconds:g} s: has the cluster a free CPU?"
            raise ClusterError(f"no worker could be started: {why}") from (failures[0] if failures else None)
        if len(self._workers) < wanted:
            log.warning("only %s of %s workers could be started: training with those", len(self._workers), wanted)
        shards = assign(self._files, len(self._workers))
        loading = [w.load.remote(shard, self._columns) for w, shard in zip(self._workers, shards, strict=True)]
        pids = self._all(self._answers(loading, SECONDS_TO_LOAD * self._timeout))
        log.info("workers: %s", " ".join(map(str, pids)))

    def train(self, task: Task) -> list[Learned]:
        """All workers together; an error of the data or settings is raised as it is, any other as `ClusterError`."""
        host = self._ray.util.get_node_ip_address()
        local = all(node["NodeManagerAddress"] == host for node in self._ray.nodes() if node["Alive"])
        opening = [worker.open.remote("127.0.0.1" if local else None) for worker in self._workers]
        addresses = self._all(self._answers(opening, self._timeout))
        token = secrets.token_bytes(32)
        runs = [w.train.remote(rank, addresses, token, task) for rank, w in enumerate(self._workers)]
        return [answer for answer in self._all(self._watched(runs)) if answer is not None]

    def dismiss(self) -> None:
        """End all workers."""
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []

    def _all(self, answers: list[Any]) -> list[Any]:
        """The answers, if there is no error among them; lost workers leave the crew."""
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if not errors:
            return answers
        ours = [error for error in errors if isinstance(error, ContradppError) and not isinstance(error, ClusterError)]
        if ours:
            raise ours[0]
        gone = [isinstance(answer, (self._ray.exceptions.RayError, TimeoutError)) for answer in answers]
        for worker, is_gone in zip(self._workers, gone, strict=True):
            if is_gone:
                self._ray.kill(worker)
        numbers = [str(rank) for rank, is_gone in enumerate(gone) if is_gone]
        self._workers = [w for w, is_gone in zip(self._workers, gone, strict=True) if not is_gone]
        if numbers:
            raise ClusterError(f"lost worker {' and '.join(numbers)}") from errors[0]
        causes = [error for error in errors if not isinstance(error, ClusterError)]
        if causes:
            raise ClusterError(f"a worker failed: {type(causes[0]).__name__}: {causes[0]}") from causes[0]
        raise ClusterError(str(errors[0])) from errors[0]

    def _answers(self, references: list[Any], seconds: float) -> list[Any]:
        """What every worker answers within so many seconds, or its error."""
        done, _ = self._ray.wait(references, num_returns=len(references), timeout=seconds)
        late = TimeoutError(f"no answer within {seconds:g} s")
        return [self._answer(reference) if reference in done else late for reference in references]

    def _watched(self, references: list[Any]) -> list[Any]:
        """What every worker answers, however long it takes, as long as it says that it is alive.

        When one fails, the others notice, and get a while to end.
        """
        answers: dict[int, Any] = {}
        heard = dict.fromkeys(range(len(references)), time.monotonic())
        pulses: dict[int, Any] = {}
        deadline = float("inf")
        while len(answers) < len(references):
            waiting = {references[rank]: rank for rank in heard if rank not in answers}
            done, _ = self._ray.wait(list(waiting), num_returns=1, timeout=min(1.0, self._timeout / 4))
            for reference in done:
                answer = answers[waiting[reference]] = self._answer(reference)
                if isinstance(answer, BaseException):
                    deadline = min(deadline, time.monotonic() + 2 * self._timeout)
            for rank in set(waiting.values()) - answers.keys():
                self._feel(rank, pulses, heard)
                if time.monotonic() > min(heard[rank] + self._timeout, deadline):
                    answers[rank] = TimeoutError(f"worker {rank} has been silent for {self._timeout:g} s")
                    deadline = min(deadline, time.monotonic() + 2 * self._timeout)
        return [answers[rank] for rank in range(len(references))]

    def _feel(self, rank: int, pulses: dict[int, Any], heard: dict[int, float]) -> None:
        """Ask a worker how far it is, or look for the answer."""
        if rank not in pulses:
            pulses[rank] = self._workers[rank].progress.remote()
        elif self._ray.wait([pulses[rank]], timeout=0)[0]:
            answer = self._answer(pulses.pop(rank))
            heard[rank] = time.monotonic()
            if rank == 0 and self._told is not None and isinstance(answer, tuple):
                self._told(*answer)

    def _answer(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return error.cause if isinstance(error.cause, BaseException) else error
        except self._ray.exceptions.RayError as error:
            return error
