"""One contest: all systems in turn, each in a process of its own, over as many events as make the faster one run long
enough; answers are checked before times count.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench import data, environments, oracle_contest
from bench.cases import Peer
from bench.contests import SIZES, WARM_UP, Contest
from bench.peers.protocol import Asked
from bench.rounds import WORK, Runs, run_script

MARGIN = 1.15
"""So much longer than asked for, because rates vary."""


def hold(
    contest: Contest,
    systems: list[Peer],
    rounds: int,
    events: int | None,
    seconds: float,
    options: dict[str, dict[str, str]],
) -> list[Runs]:
    """Run `contest` on all of `systems`, `rounds` times in turn."""
    WORK.mkdir(exist_ok=True)
    for system in systems:
        environments.prepare(system)
    number = events or contest.events
    while True:
        results = [Runs(system, 0, "") for system in systems]
        for turn in range(rounds):
            _round(contest, results, turn, rounds, number, options)
            larger = None if events or turn else _larger(contest, results, number, seconds)
            if larger:
                print(f"{contest.name}  {_fastest(results):.1f} s: once more over {larger:,} events", flush=True)
                number = larger
                break
        else:
            return results


def _round(
    contest: Contest, results: list[Runs], turn: int, rounds: int, events: int, options: dict[str, dict[str, str]]
) -> None:
    for runs in results:
        house = data.house(max(int(events * runs.peer.share), 1), contest.kinds)
        runs.events, runs.sha256 = house.rows, house.digest
        prefix = f"{contest.name}-{runs.peer.name}-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=WORK, ignore_cleanup_errors=True) as folder:
            _ask(contest, runs, house, Path(folder), options.get(runs.peer.name.split("-")[0], {}))
        rate, peak = runs.rate(turn), runs.peaks[-1]
        told = f"{rate:12,.0f} events/s  {peak:6,.0f} MiB" if rate else runs.faults[-1]
        print(f"{contest.name}  round {turn + 1}/{rounds}  {runs.peer.name:<13} {told}", flush=True)


def _ask(contest: Contest, runs: Runs, house: data.House, work: Path, options: dict[str, str]) -> None:
    warm_up = data.house(min(WARM_UP, house.events), contest.kinds)
    asked = Asked(
        case=contest.name,
        sql=contest.sql_for(runs.peer),
        keeps=contest.keeps,
        data=house.folders,
        warm_up=warm_up.folders,
        lateness=contest.lateness,
        out=str(work / "result.parquet"),
        out_warm_up=str(work / "warm-up.parquet"),
        work=str(work),
        options=options,
    )
    seconds, fault, said = run_script(runs.peer, asked.to_json(), work)
    if fault is None:
        fault = _check(contest, asked, house, warm_up)
    runs.seconds.append(None if fault else seconds)
    runs.said.update(said)
    runs.peaks.append(said.get("peak_mib", 0.0))
    if fault:
        log = WORK / f"{contest.name}-{runs.peer.name}.log"
        log.write_text((work / "log").read_text() if (work / "log").exists() else "")
        runs.faults.append(f"{fault} (see {log})")


def _check(contest: Contest, asked: Asked, house: data.House, warm_up: data.House) -> str | None:
    """What is wrong with an answer, or None."""
    given = [(Path(asked.out), house), (Path(asked.out_warm_up), warm_up)]
    given = [(path, events) for path, events in given if path.exists()]
    if not given:
        return "no rows to check"
    if not contest.compares:
        return None
    for path, events in given:
        fault = oracle_contest.difference(contest, oracle_contest.expected(contest, events, WORK), path)
        if fault is not None:
            return fault
    return None


def _fastest(results: list[Runs]) -> float:
    """The seconds of the faster system, as if all had read the same events."""
    times = [s / runs.peer.share for runs in results for s in runs.seconds if s]
    return min(times, default=float("inf"))


def _larger(contest: Contest, results: list[Runs], events: int, seconds: float) -> int | None:
    """How many events to ask over instead, if the faster system ran too short."""
    took = _fastest(results)
    if not contest.grows or took >= seconds or took == float("inf"):
        return None
    wanted = min(events * seconds / took * MARGIN, contest.most)
    larger = next((size for size in SIZES if size >= wanted), contest.most)
    return min(larger, contest.most) if min(larger, contest.most) > events else None
