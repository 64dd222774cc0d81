"""`python -m bench CASE...`: run cases, print their tables, keep their results."""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench import contest_rounds, report, rounds
from bench.cases import COMPARISONS, OURS, OWN, PEERS, named
from bench.contests import CONTESTS, GEOMETRIC, OUTSIDE, SECONDS

COUNTED = [name for name in CONTESTS if name.startswith("nexmark-") and name not in OUTSIDE]
"""The queries of Nexmark that the mean is over."""


def main() -> None:
    arguments = _parse()
    if arguments.list:
        titles = {name: case.title for name, case in COMPARISONS.items()}
        titles |= {name: case.title for name, case in OWN.items()}
        titles |= {name: case.title for name, case in CONTESTS.items()}
        for name, title in titles.items():
            print(f"{name:<18} {title}")
        return
    # Ended from outside, the systems that run in sessions of their own must end too: see rounds.run_script.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(width=150)
    ratios: dict[str, float | None] = {}
    for name in named(arguments.case, tuple(CONTESTS)):
        if name in COMPARISONS:
            _compare(name, arguments, console)
        elif name in CONTESTS:
            ratio = _contest(name, arguments, console)
            if name in COUNTED:
                ratios[name.removeprefix("nexmark-")] = ratio
        else:
            _own(name, arguments, console)
    report.geometric(ratios, GEOMETRIC, console, keep=len(ratios) == len(COUNTED) and _keeps(arguments))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("case", nargs="*", help="names as in --list, or their part before a dash, or q3; default: all")
    parser.add_argument("--list", action="store_true", help="show the cases")
    parser.add_argument("--rounds", type=int, default=3, help="how often every system runs (default 3)")
    parser.add_argument("--events", type=int, help="events to read, not the case's own number; keeps no results")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="contests: ask over more events until the faster system runs so long (default %(default)s)",
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s; 'none' for ours alone")
    parser.add_argument("--without-ours", action="store_true", help="measure the peers only; keeps no results")
    parser.add_argument("--option", action="append", default=[], metavar="PEER.NAME=VALUE", help="see bench/peers")
    return parser.parse_args()


def _compare(name: str, arguments: argparse.Namespace, console: Console) -> None:
    case, wanted = COMPARISONS[name], _wanted(arguments)
    systems = [PEERS[word] for word in case.peers if word in wanted]
    if not arguments.without_ours:
        systems.insert(0, OURS)
    results = rounds.compare(case, systems, arguments.rounds, arguments.events or case.events, _options(arguments))
    report.comparison(case, results, console, keep=_keeps(arguments))


def _contest(name: str, arguments: argparse.Namespace, console: Console) -> float | None:
    """Run a contest; ours / the first of its peers."""
    case, wanted = CONTESTS[name], _wanted(arguments)
    systems = [
        system
        for system in case.systems
        if (not arguments.without_ours if system.name == OURS.name else system.name.split("-")[0] in wanted)
    ]
    if not systems:
        return None
    results = contest_rounds.hold(
        case, systems, arguments.rounds, arguments.events, arguments.seconds, _options(arguments)
    )
    report.contest(case, results, console, keep=_keeps(arguments))
    ours = rounds.ours_of(results)
    others = [runs for runs in results if runs is not ours]
    return rounds.middle(others[0].ratios(ours)) if ours and others else None


def _wanted(arguments: argparse.Namespace) -> list[str]:
    """The peers that are asked for."""
    wanted = [word for word in arguments.peers.split(",") if word not in ("", "none")]
    unknown = [word for word in wanted if word not in PEERS]
    if unknown:
        raise SystemExit(f"no peer {unknown[0]!r}; the peers are {', '.join(PEERS)}")
    return wanted


def _options(arguments: argparse.Namespace) -> dict[str, dict[str, str]]:
    """The options by peer."""
    options: dict[str, dict[str, str]] = {}
    for option in arguments.option:
        key, value = option.split("=", 1)
        peer, setting = key.split(".", 1)
        options.setdefault(peer, {})[setting] = value
    return options


def _keeps(arguments: argparse.Namespace) -> bool:
    return not (arguments.without_ours or arguments.events)


def _own(name: str, arguments: argparse.Namespace, console: Console) -> None:
    case = OWN[name]
    rounds.WORK.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=rounds.WORK))
    try:
        figures = importlib.import_module(case.module).measure(work, arguments.events)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report.own(case, figures, console, keep=not arguments.events)


if __name__ == "__main__":
    main()
