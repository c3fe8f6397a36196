"""Judges measured ratios by their confidence intervals, and keeps runs. scripts/bench and bench/compare use it.

A row has at least: `case` and `against` (together its key), `ratios` (a list per run of the program, of a ratio per
round), `goal` (None: none) and `at_least` (whether more is better)."""

import json
import pathlib

import numpy

MET, MISSED, NOISE = "met", "missed", "within noise"
VERSION = 2
RESAMPLES = 4000
LEVEL = 0.95


def interval(ratios):
    """Returns the 95 % confidence interval of the median of all rounds, by a bootstrap over the program's runs, and over
    the rounds of each: rounds of one run share its memory's placement. The same ratios give the same interval."""
    ratios = numpy.asarray(ratios)
    runs, rounds = ratios.shape
    random = numpy.random.default_rng(0)
    run = random.integers(runs, size=(RESAMPLES, runs, 1))
    drawn = ratios[run, random.integers(rounds, size=(RESAMPLES, runs, rounds))]
    medians = numpy.median(drawn.reshape(RESAMPLES, -1), axis=1)
    return [float(bound) for bound in numpy.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]


def verdict(bounds, goal, at_least):
    """Says whether all of the interval meets the goal, all of it misses it, or neither. None if there is no goal."""
    if goal is None:
        return None
    low, high = bounds if at_least else (-bounds[1], -bounds[0])
    goal = goal if at_least else -goal
    return MET if low >= goal else MISSED if high < goal else NOISE


def best(verdicts):
    """Returns the verdict of goals of which one is enough."""
    return next((each for each in (MET, NOISE, MISSED) if each in verdicts), None)


def worst(verdicts):
    """Returns the verdict of goals that are all needed."""
    return next((each for each in (MISSED, NOISE, MET) if each in verdicts), None)


def judge(row):
    """Returns the row with `ratio`, `interval` and `verdict`."""
    bounds = interval(row["ratios"])
    return {**row, "ratio": float(numpy.median(row["ratios"])), "interval": bounds,
            "verdict": verdict(bounds, row["goal"], row["at_least"])}


def summary(verdicts):
    """Returns the last line of a table."""
    judged = [each for each in verdicts if each is not None]
    met, noise = judged.count(MET), judged.count(NOISE)
    return f"{met} of {len(judged)} goals met" + (f", {noise} within noise" if noise else "")


def word(judged):
    return {MET: "yes", MISSED: "NO", NOISE: "noise", None: ""}[judged]


def append(path, table, machine, rows):
    """Adds a run to a file of JSON lines."""
    run = {"version": VERSION, "table": table, "machine": machine, "rows": rows}
    with open(path, "a") as file:
        file.write(json.dumps(run) + "\n")


def runs(path):
    """Returns the runs of a file, oldest first. Raises ValueError if it is not such a file."""
    found = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        try:
            run = json.loads(line)
            version = run["version"]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path}, line {number}: not a run that scripts/bench --json wrote") from None
        if version != VERSION:
            raise ValueError(f"{path}, line {number}: version {version}, not {VERSION}")
        found.append(run)
    if not found:
        raise ValueError(f"{path}: has no run")
    return found


def change(old, new):
    """Compares two rows: "better" or "worse" if their intervals do not overlap, else "within noise"."""
    (old_low, old_high), (new_low, new_high) = old["interval"], new["interval"]
    if new_low <= old_high and old_low <= new_high:
        return NOISE
    return "better" if (new_low > old_high) == new["at_least"] else "worse"


def key(row):
    return row["case"], row.get("against", "")
