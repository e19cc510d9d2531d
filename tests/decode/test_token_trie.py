"""Nodes that point to the one before them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.decode.token_trie import ROOT, TokenTrie

Node = tuple[int, int, int, float]


def add(trie: TokenTrie, nodes: list[Node]) -> None:
    tokens, parents, frames, confidences = zip(*nodes, strict=True)
    trie.append(np.array(tokens), np.array(parents), np.array(frames), np.array(confidences))


def history(trie: TokenTrie, node: int) -> list[tuple[int, int, float]]:
    """(token, frame, confidence) of a node and of those before it; the root is none."""
    return [(trie.token(one), *trie.parent_peak(one)) for one in trie.path(node)]


@st.composite
def grown(draw: st.DrawFn) -> list[list[Node]]:
    """Batches of nodes, each with a parent that is there already."""
    count, batches = 1, []
    for size in draw(st.lists(st.integers(1, 8), max_size=8)):
        batch = [
            (draw(st.integers(0, 9)), draw(st.integers(0, count - 1)), count + index, (count + index) / 1000)
            for index in range(size)
        ]
        batches.append(batch)
        count += size
    return batches


def test_a_path_leads_back_to_the_root() -> None:
    trie = TokenTrie()
    add(trie, [(5, ROOT, 0, 0.0), (6, ROOT, 0, 0.0)])
    add(trie, [(7, 1, 3, 0.5), (8, 3, 4, 0.25)])
    assert trie.count == 5
    assert trie.path(4) == [4, 3, 1]
    assert [trie.token(node) for node in trie.path(4)] == [8, 7, 5]
    assert trie.parent(4) == 3 and trie.parent(1) == ROOT
    assert trie.parent_peak(4) == (4, 0.25)
    assert trie.path(ROOT) == []


def test_a_path_may_stop_at_an_ancestor() -> None:
    trie = TokenTrie()
    add(trie, [(5, ROOT, 0, 0.0), (6, 1, 0, 0.0), (7, 2, 0, 0.0)])
    assert trie.path(3, until=1) == [3, 2]
    assert trie.path(3, until=3) == []


@given(grown())
def test_what_was_added_stays(batches: list[list[Node]]) -> None:
    trie = TokenTrie()
    nodes: list[Node] = [(-1, ROOT, 0, 0.0)]
    for batch in batches:
        add(trie, batch)
        nodes += batch
        assert trie.count == len(nodes)
    for node in range(1, len(nodes)):
        found = (trie.token(node), trie.parent(node), *trie.parent_peak(node))
        assert found == nodes[node]


def test_thousands_of_nodes_have_room() -> None:
    trie = TokenTrie()
    for first in range(0, 3000, 600):
        add(trie, [(node % 7, node, node, 0.5) for node in range(first, first + 600)])
    assert trie.path(3000) == list(range(3000, 0, -1))
    assert [token for token, *_ in history(trie, 3000)] == [node % 7 for node in reversed(range(3000))]


@given(grown(), st.data())
def test_compacting_keeps_the_leaves_histories_and_nothing_else(batches: list[list[Node]], data: st.DataObject) -> None:
    trie = TokenTrie()
    for batch in batches:
        add(trie, batch)
    leaves = data.draw(st.lists(st.integers(0, trie.count - 1), min_size=1, max_size=6))
    before = [history(trie, leaf) for leaf in leaves]
    needed = {node for leaf in leaves for node in trie.path(leaf)}
    renamed = trie.compact(np.array(leaves)).tolist()
    assert [history(trie, leaf) for leaf in renamed] == before
    assert trie.count == 1 + len(needed)
    assert len(set(renamed)) == len(set(leaves))
    # New nodes go on behind what is left.
    add(trie, [(3, renamed[0], 77, 0.125)])
    assert history(trie, trie.count - 1) == [(3, 77, 0.125), *before[0]]
