"""How the kernel of an operator is found, and which services it has in a task."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millstream.engine.exchange.graph import Graph, GraphNode
from millstream.engine.exchange.parcels import ROWS, Sender
from millstream.engine.exchange.results import opened
from millstream.engine.exchange.routes import Routes
from millstream.engine.tasks.level_task import LevelTask
from millstream.errors import PlanError
from millstream.kernels.kernel import NO_SERVICES, Kernel, kernel_of
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.relations.distinct import DistinctRows
from millstream.plan.parts import Measure
from millstream.plan.plan import PlannedView
from millstream.state.local_storage import LocalStorage
from millstream.state.version import Version

OPERATOR = DistinctRows("v")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda s: s.holds(OPERATOR, None, pl.DataFrame()), "evaluates conditions"),
        (lambda s: s.look_up(OPERATOR, pl.DataFrame()), "performs lookups"),
        (lambda s: s.fixpoint(OPERATOR, []), "runs loops"),
    ],
)
def test_a_kernel_may_have_no_services(call: Callable[[Any], Any], reason: str) -> None:
    with pytest.raises(NotImplementedError, match=f"^v: nothing {reason} where this kernel runs$"):
        call(NO_SERVICES)


def _module(name: str, monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(values)
    monkeypatch.setitem(sys.modules, name, module)


def _external(kernel: str, module: str) -> Any:
    """An operator of another package."""
    return type("Sampled", (DistinctRows,), {"kernel": kernel, "__module__": module})("v")


def test_an_exchange_task_runs_kernels_without_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[Any] = []

    def advance(operator: Any, inputs: Any, states: Any, clock: OperatorClock, services: Any) -> Outcome:
        passed.append((inputs["rows"].rows(), services))
        return Outcome(inputs["rows"])

    scan = kernel_of(Aggregation("v", (), Windowing(), ())).scan
    assert scan is not None
    own_scan = replace(scan, gather=lambda operator, frames: pl.concat(frames))
    _module("tasks_kernel", monkeypatch, KERNEL=Kernel(advance, scan=own_scan))
    operator = type("Spread", (Aggregation,), {"kernel": "tasks_kernel"})(
        "v", (), Windowing(), (Measure("n", "count", False),)
    )
    view = PlannedView("v", operator, None, (), (), None, None, None, kept=False)
    routes = Routes(Graph({0: GraphNode(0, view, 1, to_driver=True)}), 2, frozenset(), LocalStorage(tmp_path))
    task = LevelTask(1, routes, LocalStorage(tmp_path), 1, 0, Version(), {0: OperatorClock(0, 0)})
    found = opened(task.run(Sender(0).rows(ROWS, 0, pl.DataFrame({"a": [1, 2]})), 0, 7))
    assert [frame.rows() for frame in found.operators[0].changes] == [[(1,), (2,)]]
    assert [given for given, _ in passed] == [[(1,), (2,)]]
    services = passed[0][1]
    for call in (
        lambda: services.holds(OPERATOR, None, pl.DataFrame()),
        lambda: services.look_up(OPERATOR, pl.DataFrame()),
        lambda: services.fixpoint(OPERATOR, []),
    ):
        with pytest.raises(NotImplementedError, match=r"^v: nothing .* where this kernel runs$"):
            call()


def test_an_operator_of_another_package_needs_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    _module("sampling", monkeypatch)
    _module("sampling_kernel", monkeypatch, KERNEL=len)
    cases = {
        ("", "sampling"): "looked in the module `sampling`: it has no value KERNEL",
        ("sampling_kernel", "sampling"): "looked in the module `sampling_kernel`: its KERNEL is a builtin_function",
        ("no_such_kernel", "sampling"): "there is no module `no_such_kernel`",
        ("sampling.no_such_kernel", "sampling"): "there is no module `sampling.no_such_kernel`",
    }
    for (kernel, module), detail in cases.items():
        with pytest.raises(PlanError, match="the operator Sampled has no kernel") as error:
            kernel_of(_external(kernel, module))
        assert (error.value.detail or "").startswith(detail)
        assert "KERNEL = Kernel(advance)" in (error.value.hint or "")


def test_a_kernel_that_imports_a_missing_module_fails_with_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_kernel.py").write_text("import no_such_library\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        kernel_of(_external("broken_kernel", "sampling"))


def test_an_operator_of_another_package_names_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(lambda *_: Outcome())
    _module("sampling_kernel", monkeypatch, KERNEL=kernel)
    assert kernel_of(_external("sampling_kernel", "sampling")) is kernel
