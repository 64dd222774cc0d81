"""PAUSE and RESUME: stop a flow, and run it again and report the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, ViewFailed
from millstream.live.answer import Answer
from millstream.live.definitions import FlowNote
from millstream.runtime.inspect.status import has_failed
from millstream.runtime.supervision.run import ENDED

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.sql.parse.statement_values import Pause


def pause(deployment: Deployment, statement: Pause, wait: float) -> Answer:
    """PAUSE and RESUME. RESUME waits up to `wait` seconds to report the outcome."""
    with deployment.lock:
        flow = deployment.flow_of(statement.name)
        definitions = deployment.definitions.copy()
        definitions.flows.setdefault(flow, FlowNote()).paused = not statement.resume
        deployment.commit(deployment.catalog, definitions)
        if not statement.resume:
            deployment.stop(flow)
            return Answer(message=f"the flow {flow} is paused; RESUME {flow} continues from the same place")
        run, before = deployment.runs.get(flow), deployment.home.flow_state(flow)
        if run is None or run.state in ENDED:
            mine = [n for n, d in deployment.definitions.entries.items() if d.flow == flow]
            deployment.broken = {
                n: e for n, e in deployment.broken.items() if n not in mine or deployment.catalog.get(n) is None
            }
            deployment.restart(flow)
    return Answer(message=_resumed(deployment, flow, before, wait))


def _resumed(deployment: Deployment, flow: str, before: str, wait: float) -> str:
    """Report the outcome of a resumed flow. Raises ViewFailed when it does not run."""
    broken, run, had = deployment.broken_views_of(flow), deployment.runs.get(flow), has_failed(before)
    if broken:
        raise ViewFailed(broken, hint=f"fix the cause, then RESUME {flow}")
    if run is None:
        return f"the flow {flow} is resumed"
    try:
        run.catch_up(wait)
    except TimeoutError:
        return f"the flow {flow} is resumed; it has not caught up within {wait:g} seconds"
    except MillstreamError as error:
        raise ViewFailed(
            f"the flow `{flow}` failed{' again' if had else ''}: {error.message}",
            detail=error.detail,
            hint=f"fix the cause, then RESUME {flow}",
        ) from error
    return f"the flow {flow} is resumed" + (f" and has caught up; it was: {before}" if had else "")
