"""Performs lookups in external systems: calls a function with batches of keys, several at a time, with a timeout and
retries.

Results are recorded durably before they are used. A rerun of the epoch takes the recorded results and gives the same
output. Asynchronous functions run in one event loop that lives as long as the process, so that a client they hold stays
usable. The kernel of lookups receives the results.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import polars as pl

from millstream.engine.driver.lookup_records import LookupRecords
from millstream.engine.spark.sent_function import SentFunction
from millstream.kernels.python.by_key import KEY
from millstream.kernels.python.lookup import answers, lookup_keys
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.state.storage import Storage

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""How long, in seconds, a call waits before a retry; the pause grows with each retry."""


def answered(operator: AsyncLookup, questions: pl.DataFrame, storage: Storage, epoch: int) -> pl.DataFrame:
    """The results for the lookups of an epoch: those that an earlier attempt has recorded, and new ones."""
    records = LookupRecords.of(storage, operator, epoch)
    known = records.read(records.names())
    new = questions if known is None else questions.join(known, on=KEY, how="anti", maintain_order="left")
    if len(new):
        fresh = answers(operator, new, asked(operator, lookup_keys(operator, new)))
        known = fresh if known is None else pl.concat([known, fresh], how="vertical_relaxed")
        records.write(records.of_driver, known)
    assert known is not None, "there are questions"
    return known.join(questions, on=KEY, how="semi", maintain_order="left")


def asked(what: AsyncLookup, questions: Sequence[Any]) -> list[Any]:
    """The results of the function, in order. An error stands for each lookup of a call that failed permanently."""
    batches = [questions[i : i + what.batch] for i in range(0, len(questions), what.batch)]

    async def all_of_them() -> list[list[Any]]:
        gate = asyncio.Semaphore(what.parallel)
        return await asyncio.gather(*(_one(what, batch, gate) for batch in batches))

    found = asyncio.run_coroutine_threadsafe(all_of_them(), _loop()).result()
    return [answer for batch in found for answer in batch]


async def _one(what: AsyncLookup, batch: Sequence[Any], gate: asyncio.Semaphore) -> list[Any]:
    pause = FIRST_PAUSE
    async with gate:
        for attempt in range(what.retries + 1):
            try:
                given = await asyncio.wait_for(_called(what, list(batch)), _seconds(what.timeout))
                return _aligned(what, given, len(batch))
            except Exception as error:  # noqa: BLE001 - any error may be temporary
                if attempt == what.retries:
                    return [_named(what, error)] * len(batch)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    raise AssertionError


def _named(what: AsyncLookup, error: Exception) -> Exception:
    if isinstance(error, TimeoutError) and what.timeout is not None:
        return TimeoutError(f"no answer within {what.timeout / 1e6:g} s, asked {what.retries + 1} times")
    return error


def _aligned(what: AsyncLookup, given: Any, count: int) -> list[Any]:
    found = list(given)
    if len(found) != count:
        msg = f"{len(found)} answers were given to {count} questions"
        raise ValueError(msg)
    return found


async def _called(what: AsyncLookup, batch: list[Any]) -> Any:
    function = what.function.function if isinstance(what.function, SentFunction) else what.function
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose call is asynchronous
    ):
        return await function(batch)
    return await _in_thread(lambda: function(batch))


def _in_thread(call: Callable[[], Any]) -> asyncio.Future[Any]:
    """A call in a daemon thread, which does not keep the process alive if it never returns."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def done(value: Any, error: Exception | None) -> None:
        if future.done():  # the call has timed out
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value: Any = None
        error: Exception | None = None
        try:
            value = call()
        except StopIteration as stop:  # a future accepts any other exception
            error = RuntimeError(f"StopIteration: {stop}")
        except Exception as problem:  # noqa: BLE001 - raised where it is awaited
            error = problem
        loop.call_soon_threadsafe(done, value, error)

    threading.Thread(target=run, name="millstream-ask", daemon=True).start()
    return future


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="millstream-asking", daemon=True).start()
    return loop


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6
