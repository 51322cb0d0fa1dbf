"""Calls spread over processes of this machine, or over the machines of a Ray cluster."""

from __future__ import annotations

import contextlib
import enum
import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from conccl.core.errors import InputError, MissingExtraError, UnknownNameError

Result = TypeVar("Result")


BATCH = 256
"""Calls between two looks at results of a Ray cluster."""


class Workers(enum.StrEnum):
    """Who does the work."""

    JOBLIB = "joblib"
    """Processes of this machine."""
    RAY = "ray"
    """A Ray cluster: the one at RAY_ADDRESS, else one on this machine."""


def workers_of(name: str, /) -> Workers:
    """The workers of this name, if they are installed."""
    if name not in list(Workers):
        raise UnknownNameError(kind="engine", name=name, known=list(Workers))
    if name == Workers.RAY and importlib.util.find_spec("ray") is None:
        raise MissingExtraError(module="Ray", extra="ray")
    return Workers(name)


def spread(
    function: Callable[..., Result],
    arguments: Sequence[tuple[Any, ...]],
    /,
    *,
    jobs: int,
    workers: Workers = Workers.JOBLIB,
) -> Iterator[Result]:
    """``function(*arguments[i])`` for each i, in order, as they become ready; ``jobs`` at a time.

    One job of this machine is this process itself.
    """
    if jobs == 1 and workers is Workers.JOBLIB:
        yield from (function(*each) for each in arguments)
        return
    import joblib  # noqa: PLC0415 (slow to load, and most work is small)

    work = [joblib.delayed(function)(*each) for each in arguments]
    if workers is Workers.JOBLIB:
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator")(work)
        return
    # Ray's backend gives results only when a call is over: calls of a few each, on the same workers
    with _cluster(), joblib.Parallel(n_jobs=jobs, backend="ray") as parallel:
        for start in range(0, len(work), BATCH):
            yield from parallel(work[start : start + BATCH])


def all_processors(workers: Workers, /) -> int:
    """Jobs that all processors of this machine, or of the cluster, can do at a time."""
    return -1 if workers is Workers.RAY else os.cpu_count() or 1


@contextlib.contextmanager
def _cluster() -> Iterator[None]:
    """Joblib's backend "ray"; a cluster that was started for it is stopped behind it."""
    ray = importlib.import_module("ray")  # an extra, slow to load, without types
    started = not ray.is_initialized()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, about what it will change one day
        if started:
            _join(ray)
        importlib.import_module("ray.util.joblib").register_ray()
        try:
            yield
        finally:
            if started:
                ray.shutdown()


def _join(ray: Any) -> None:
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        where = os.environ.get("RAY_ADDRESS", "this machine")
        raise InputError(
            f"no Ray cluster at {where}: {error}. Start one (ray start --head), set RAY_ADDRESS, or use"
            " --engine joblib."
        ) from error
