"""Where a beam's hypotheses come from: tokens and their peaks, each pointing to the one before it."""

import numpy as np

ROOT = 0
_FIRST_CAPACITY = 256


class TokenTrie:
    """Nodes of one stream. A node holds its token, its parent, and where the parent's token had its peak.

    Which alignment of a prefix wins is known only when it is extended, so a node keeps its parent's peak and not its
    own; that of a last token is with the beam.
    """

    def __init__(self) -> None:
        self.count = 1
        self._tokens = np.full(_FIRST_CAPACITY, -1, dtype=np.int64)
        self._parents = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        self._frames = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        self._confidences = np.zeros(_FIRST_CAPACITY, dtype=np.float64)

    def append(self, tokens: np.ndarray, parents: np.ndarray, frames: np.ndarray, confidences: np.ndarray) -> None:
        """Adds nodes [n]; their ids go on from `count`."""
        end = self.count + len(tokens)
        while end > len(self._tokens):
            for name in ("_tokens", "_parents", "_frames", "_confidences"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate((array, np.zeros_like(array))))
        self._tokens[self.count : end] = tokens
        self._parents[self.count : end] = parents
        self._frames[self.count : end] = frames
        self._confidences[self.count : end] = confidences
        self.count = end

    def path(self, node: int, until: int = ROOT) -> list[int]:
        """Nodes from `node` back to, and without, `until`, an ancestor of it; the root is an ancestor of all."""
        found = []
        while node != until and node != ROOT:
            found.append(node)
            node = int(self._parents[node])
        return found

    def parent(self, node: int) -> int:
        return int(self._parents[node])

    def token(self, node: int) -> int:
        return int(self._tokens[node])

    def parent_peak(self, node: int) -> tuple[int, float]:
        """Frame and posterior of the peak of a node's parent, on the alignment that the node continues."""
        return int(self._frames[node]), float(self._confidences[node])

    def compact(self, leaves: np.ndarray) -> np.ndarray:
        """Forgets every node that is no ancestor of `leaves` [n]; returns the leaves' new ids."""
        kept = sorted({node for leaf in set(leaves.tolist()) for node in self.path(leaf)})
        renamed = {ROOT: ROOT, **{node: index for index, node in enumerate(kept, 1)}}
        for name in ("_tokens", "_frames", "_confidences"):
            array = getattr(self, name)
            array[1 : len(kept) + 1] = array[kept]
        self._parents[1 : len(kept) + 1] = [renamed[int(parent)] for parent in self._parents[kept]]
        self.count = len(kept) + 1
        return np.array([renamed[leaf] for leaf in leaves.tolist()], dtype=np.int64)
