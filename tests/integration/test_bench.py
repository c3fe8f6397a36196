"""Tests how scripts/bench judges its figures and keeps runs, and bench/compare. Nothing is measured here."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import judge  # noqa: E402

STEADY = [0.99, 1.0, 1.01] * 3
MACHINE = {"processor": "A", "date": "2026-01-02 03:04", "posenc": "0.1"}


def row(ratios, case="64 KiB x1", goal=None, at_least=True, against="copy"):
    return judge.judge({"case": case, "against": against, "ratios": [ratios], "goal": goal, "at_least": at_least})


def compare(*paths):
    return subprocess.run([ROOT / "bench" / "compare", *paths], capture_output=True, text=True)


def test_an_interval_contains_the_median_and_narrows_with_rounds():
    few, many = judge.interval([[0.9, 1.0, 1.1]]), judge.interval([[0.9, 1.0, 1.1] * 20])
    assert few[0] <= 1.0 <= few[1] and many[0] <= 1.0 <= many[1]
    assert many[1] - many[0] < few[1] - few[0]
    assert judge.interval([[0.9, 1.0, 1.1]]) == few, "the same ratios give the same interval"


def test_an_interval_covers_how_runs_of_the_program_differ():
    low, high = judge.interval([[0.8] * 11, [1.0] * 11, [1.2] * 11])
    assert low <= 0.8 and high >= 1.2


@pytest.mark.parametrize("goal, at_least, expected", [
    (0.95, True, judge.MET), (1.05, True, judge.MISSED), (1.005, True, judge.NOISE),
    (1.05, False, judge.MET), (0.95, False, judge.MISSED), (0.995, False, judge.NOISE),
    (None, True, None), (0.99, True, judge.MET), (1.01, False, judge.MET),
])
def test_a_goal_is_judged_by_the_whole_interval(goal, at_least, expected):
    judged = row(STEADY, goal=goal, at_least=at_least)
    assert judged["ratio"] == 1.0 and judged["interval"] == [0.99, 1.01]
    assert judged["verdict"] == expected


def test_a_goal_with_alternatives_needs_one_and_one_of_several_parts_needs_all():
    assert judge.best([judge.MISSED, judge.MET, judge.NOISE]) == judge.MET
    assert judge.best([judge.MISSED, judge.NOISE]) == judge.NOISE
    assert judge.worst([judge.MET, judge.NOISE, judge.MISSED]) == judge.MISSED
    assert judge.worst([judge.MET, judge.NOISE]) == judge.NOISE
    assert judge.best([None]) is None and judge.worst([]) is None


def test_the_last_line_counts_what_noise_leaves_open():
    assert judge.summary([judge.MET, judge.MISSED, None]) == "1 of 2 goals met"
    assert judge.summary([judge.MET, judge.NOISE, judge.NOISE]) == "1 of 3 goals met, 2 within noise"


def test_compare_names_what_changed_beyond_noise(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    judge.append(old, "wire", MACHINE, [
        row(STEADY, "slower", goal=0.95), row(STEADY, "faster"), row(STEADY, "same"), row(STEADY, "less is better",
                                                                                         at_least=False),
        row(STEADY, "gone"), row(STEADY, "same", against="echo")])
    judge.append(new, "wire", {**MACHINE, "processor": "B"}, [
        row([0.8 * ratio for ratio in STEADY], "slower", goal=0.95), row([1.2 * ratio for ratio in STEADY], "faster"),
        row([1.005 * ratio for ratio in STEADY], "same"),
        row([0.5 * ratio for ratio in STEADY], "less is better", at_least=False), row(STEADY, "fresh"),
        row([2 * ratio for ratio in STEADY], "same", against="echo")])
    done = compare(old, new)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    table = {line.split("  ")[0] + " " + ("echo" if " echo " in line else "copy"): line for line in lines[3:]}
    assert "-20.0 % worse" in table["slower copy"] and table["slower copy"].endswith("met -> missed")
    assert "+20.0 % better" in table["faster copy"]
    assert "-50.0 % better" in table["less is better copy"]
    assert "+100.0 % better" in table["same echo"] and "same copy" not in table
    assert "The runs are of different processors." in lines
    assert "1 cases are in OLD alone." in lines and "1 cases are in NEW alone." in lines
    assert lines[-1] == "3 better, 1 worse, 1 within noise"


def test_compare_takes_the_last_runs_of_one_table_from_a_file_that_keeps_them(tmp_path):
    history = tmp_path / "history"
    for table, factor in (("wire", 5), ("wire", 1), ("kernels", 3), ("wire", 2)):
        judge.append(history, table, MACHINE, [row([factor * ratio for ratio in STEADY])])
    done = compare(history, history)
    assert done.returncode == 0, done.stderr
    assert "+100.0 % better" in done.stdout
    assert [run["table"] for run in judge.runs(history)] == ["wire", "wire", "kernels", "wire"]


@pytest.mark.parametrize("text, expected", [
    ("", "has no run"), ("[]\n", "line 1: not a run"), ('{"version": 1}\n', "line 1: version 1, not 2"),
    (json.dumps({"version": 2, "table": "kernels", "machine": MACHINE, "rows": []}) + "\n{", "line 2: not a run"),
    (json.dumps({"version": 2, "table": "kernels", "machine": MACHINE, "rows": []}), "no earlier run of the table wire"),
])
def test_compare_refuses_a_file_without_such_a_run(tmp_path, text, expected):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text(text)
    judge.append(new, "wire", MACHINE, [row(STEADY)])
    done = compare(old, new)
    assert done.returncode == 2
    assert str(old) in done.stderr and expected in done.stderr


def test_compare_refuses_a_missing_file_and_other_counts_of_files(tmp_path):
    for arguments in ([tmp_path / "none", tmp_path / "none"], [], [tmp_path]):
        assert compare(*arguments).returncode == 2
