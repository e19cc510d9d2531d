"""Phrases that a search is biased towards, as an automaton over tokens (Aho and Corasick 1975)."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROOT = 0


@dataclass(frozen=True)
class HotwordGraph:
    """The automaton of one request, complete over the tokens that its phrases hold; any other token leads to the root.

    `alphabet` gives those tokens their columns, from 1 on; `reached` and `gained` are [nodes][columns] with column 0
    for any other token: the next node, and what the step adds to a hypothesis. `held` [nodes] is what a hypothesis
    that stops in a node has on account of a phrase that it has not completed, or has just completed.
    """

    alphabet: Mapping[int, int]
    reached: tuple[tuple[int, ...], ...]
    gained: tuple[tuple[float, ...], ...]
    held: tuple[float, ...]


def build_graph(phrases: Sequence[tuple[Sequence[int], float]]) -> HotwordGraph:
    """The automaton of (tokens, score a token) phrases.

    Every token of a phrase adds its score; the last adds the whole phrase's once more, and leaving a phrase takes back
    what its tokens added. So a completed phrase keeps its length times its score, a broken one nothing. Tokens that
    phrases share count by the highest of their scores until one is completed.
    """
    children: list[dict[int, int]] = [{}]
    token_score = [0.0]
    completed = [0.0]
    # Higher scores first, so that shared tokens get the highest.
    for tokens, score in sorted(phrases, key=lambda phrase: -phrase[1]):
        node = ROOT
        for token in tokens:
            if token not in children[node]:
                children[node][token] = len(children)
                children.append({})
                token_score.append(score)
                completed.append(0.0)
            node = children[node][token]
        completed[node] = max(completed[node], len(tokens) * score)
    order, fail = _failures(children)
    depth_score = [0.0] * len(children)
    for node in order:
        for child in children[node].values():
            depth_score[child] = depth_score[node] + token_score[child]
    # Completing a phrase completes those that end with it, too.
    output = [0.0] * len(children)
    for node in order:
        output[node] = completed[node] + (output[fail[node]] if node != ROOT else 0.0)
    alphabet = {token: column for column, token in enumerate(sorted({t for each in children for t in each}), 1)}
    reached: list[tuple[int, ...]] = []
    gained: list[tuple[float, ...]] = []
    for node in range(len(children)):
        goes, adds = [ROOT], [-depth_score[node]]
        for token in alphabet:
            following = _follow(node, token, children, fail)
            grows = token in children[node]
            step = token_score[following] if grows else depth_score[following] - depth_score[node]
            goes.append(following)
            adds.append(step + output[following])
        reached.append(tuple(goes))
        gained.append(tuple(adds))
    return HotwordGraph(alphabet, tuple(reached), tuple(gained), tuple(depth_score))


def _failures(children: Sequence[Mapping[int, int]]) -> tuple[list[int], list[int]]:
    """Nodes by depth, and of each the longest proper suffix that is a node."""
    fail = [ROOT] * len(children)
    order = [ROOT]
    queue = deque([ROOT])
    while queue:
        node = queue.popleft()
        for token, child in children[node].items():
            if node != ROOT:
                fail[child] = _follow(fail[node], token, children, fail)
            order.append(child)
            queue.append(child)
    return order, fail


def _follow(node: int, token: int, children: Sequence[Mapping[int, int]], fail: Sequence[int]) -> int:
    while token not in children[node] and node != ROOT:
        node = fail[node]
    return children[node].get(token, ROOT)


class BiasTables:
    """The automata of n streams as tensors; streams without hotwords stay at a root that adds nothing."""

    def __init__(self, graphs: Sequence[HotwordGraph | None], vocab_size: int, device: torch.device):
        nodes = max((len(graph.reached) for graph in graphs if graph is not None), default=1)
        columns = max((len(graph.alphabet) + 1 for graph in graphs if graph is not None), default=1)
        self._column = torch.zeros(len(graphs), vocab_size, dtype=torch.int64)
        self._reached = torch.zeros(len(graphs), nodes, columns, dtype=torch.int64)
        self._gained = torch.zeros(len(graphs), nodes, columns, dtype=torch.float64)
        self._held = torch.zeros(len(graphs), nodes, dtype=torch.float64)
        for row, graph in enumerate(graphs):
            if graph is None:
                continue
            self._column[row, list(graph.alphabet)] = torch.tensor(list(graph.alphabet.values()), dtype=torch.int64)
            height, width = len(graph.reached), len(graph.alphabet) + 1
            self._reached[row, :height, :width] = torch.tensor(graph.reached)
            self._gained[row, :height, :width] = torch.tensor(graph.gained, dtype=torch.float64)
            self._held[row, :height] = torch.tensor(graph.held, dtype=torch.float64)
        for name in ("_column", "_reached", "_gained", "_held"):
            setattr(self, name, getattr(self, name).to(device))

    def first(self, count: int) -> "BiasTables":
        """A view of the first `count` streams."""
        view = object.__new__(BiasTables)
        for name in ("_column", "_reached", "_gained", "_held"):
            setattr(view, name, getattr(self, name)[:count])
        return view

    def follow(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """`states` [n, beam] after each of `tokens` [n, k]: what is gained [n, beam, k] and the node reached."""
        columns = self._column.gather(1, tokens)
        rows = torch.arange(states.shape[0], device=states.device)[:, None, None]
        index = rows, states[:, :, None], columns[:, None, :]
        return self._gained[index], self._reached[index]
