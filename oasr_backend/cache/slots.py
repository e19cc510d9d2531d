"""Slots: a stream's row in every state tensor."""


class SlotPool:
    """Slot ids 0 .. count - 1."""

    def __init__(self, count: int):
        self.count = count
        self._free = list(range(count - 1, -1, -1))
        self._taken: set[int] = set()

    @property
    def free_slots(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """Raises RuntimeError when all are taken."""
        if not self._free:
            raise RuntimeError(f"all {self.count} slots are taken")
        slot = self._free.pop()
        self._taken.add(slot)
        return slot

    def give_back(self, slot: int) -> None:
        """Raises ValueError for a slot that is not taken."""
        if slot not in self._taken:
            raise ValueError(f"slot {slot} is given back but not taken")
        self._taken.remove(slot)
        self._free.append(slot)
