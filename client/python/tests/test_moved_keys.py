"""Tests move_keys() of local clients: the examples of docs/moved-keys.md, and pages in place."""

import json
import pathlib
import re

import numpy as np
import posenc
import pytest

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "moved-keys.md"
SHORT = {"rope_parameters": {"rope_type": "default"}, "rotary_dim": 64, "input_pairing": "HALF_SPLIT"}


def random(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype("f4")


def test_the_examples_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(
        {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 1}))
    keys, cache = random(1, 8, 2, 64), random(9, 16, 2, 64)
    names = {"keys": keys, "cache": cache.copy()}
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    moved = []
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
        moved.append(names.get("cached"))
    with posenc.local() as client:
        assert (moved[0] == client.rope(keys, model="config.json", positions=np.full(8, -4096), layout="BSHD").q).all()
    assert 0.001 < np.abs(moved[1] - keys).max() < 1
    changed = (names["cache"] != cache).any(axis=(2, 3))
    assert changed.sum() == 40 and changed[7, 3:].all() and changed[2].all() and changed[5, :11].all()


def test_pages_turn_as_the_dense_keys():
    cache, at = random(4, 8, 2, 64), [(3, 6), (3, 7), (1, 0), (1, 1), (1, 2)]
    before = cache.copy()
    with posenc.local() as client:
        answer = client.move_keys(cache, settings=SHORT, layout="BSHD", from_positions=90, positions=4,
                                  pages={"block_table": [3, 1], "first_slot": 6, "tokens": 5})
        dense = np.stack([before[place] for place in at])
        moved = client.move_keys(dense, settings=SHORT, layout="THD", from_positions=90, positions=4).k
    assert answer.k is cache and (np.stack([cache[place] for place in at]) == moved).all()
    assert [note.code for note in answer.info.notes] == ["MOVED_KEYS"]


def test_into_other_memory_or_in_place():
    keys = random(1, 8, 2, 64)
    out = np.empty_like(keys)
    with posenc.local() as client:
        fields = {"settings": SHORT, "layout": "BSHD", "from_positions": 0, "positions": np.arange(8) * 2}
        assert client.move_keys(keys, out=out, **fields).k is out
        assert (client.move_keys(keys, **fields).k == out).all()
        with pytest.raises(posenc.Error, match="pages"):
            client.move_keys(keys, out=np.empty_like(keys), pages={"block_table": [0], "tokens": 8}, **fields)
        client.move_keys(keys, out=keys, **fields)
    assert (keys == out).all()
