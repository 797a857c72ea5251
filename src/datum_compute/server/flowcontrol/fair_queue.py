"""The order in which waiting work is served: start-time fair queueing over a tree of shares.

The tree has three stages: priority levels by weight, their planes, and the users of a plane. Every
node has a finish time in the virtual time of its parent, which grows by the cost of its work
divided by its weight. The node whose work can start earliest is served next. A node that was idle
starts at the virtual time of now: it is served before those that used more, and gets no credit for
the time in which it used nothing.

The cost of work is known only after it was done. Work that is taken from the queue is charged with
an estimate, the highest recent cost of its flow; ``settle`` replaces the estimate.

This is a pure data structure: no clock, no event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

from datum_compute.server.flowcontrol.levels import PriorityLevel

# What a request of a flow without history is expected to cost: about one write.
FIRST_ESTIMATE_S = 0.0003
_ESTIMATE_DECAY = 0.1
# Idle flows are dropped when there are more than this.
FLOWS_MAX = 4096

T = TypeVar("T")


class _Share:
    """A node: what it has used of its parent's time, and its children that have work waiting."""

    __slots__ = ("children", "finish_s", "is_listed", "now_s", "parent", "per_weight", "waiting")

    def __init__(self, parent: _Share | None, weight: float = 1.0) -> None:
        self.parent = parent
        self.per_weight = 1.0 / weight
        self.finish_s = 0.0  # in the virtual time of the parent
        self.now_s = 0.0  # the virtual time of its children
        self.waiting = 0  # how much work waits here and below
        self.is_listed = False  # among the children of the parent
        self.children: list[tuple[float, int, _Share]] = []  # heap by start time


class Flow(_Share, Generic[T]):
    """The work of one user on one plane at one level."""

    __slots__ = ("estimate_s", "level", "path", "plane", "queue", "requests", "size_bytes", "user")

    def __init__(self, parent: _Share, level: PriorityLevel, plane: str, user: str) -> None:
        super().__init__(parent)
        self.level = level
        self.plane = plane
        self.user = user
        self.queue: deque[T] = deque()
        self.estimate_s = FIRST_ESTIMATE_S
        self.requests = self.size_bytes = 0  # for a caller that limits them
        assert parent.parent is not None
        # The nodes that pay for its work, each with its parent.
        of_level = parent.parent
        assert of_level.parent is not None
        self.path = ((self, parent), (parent, of_level), (of_level, of_level.parent))


class FairQueue(Generic[T]):
    def __init__(self) -> None:
        self.root = _Share(None)
        self._levels: dict[PriorityLevel, _Share] = {}
        self._planes: dict[tuple[PriorityLevel, str], _Share] = {}
        self._flows: dict[tuple[PriorityLevel, str, str], Flow[T]] = {}
        self._flows_max = FLOWS_MAX
        self._numbers = count()

    def __len__(self) -> int:
        """How much work waits."""
        return self.root.waiting

    def waiting(self, level: PriorityLevel) -> int:
        found = self._levels.get(level)
        return found.waiting if found is not None else 0

    def flow(self, level: PriorityLevel, plane: str, user: str) -> Flow[T]:
        """The flow of a user on a plane; a new one starts at the virtual time of now."""
        key = (level, plane, user)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= self._flows_max:
                self._drop_idle()
            flow = self._flows[key] = Flow(self._plane(level, plane), level, plane, user)
        return flow

    def owes(self, flow: Flow[T]) -> bool:
        """Whether the flow, or its plane, has used more than its share so far; if not, its work
        would be served next."""
        plane = flow.parent
        assert plane is not None
        level = plane.parent
        assert level is not None
        if plane.finish_s > level.now_s:
            return True
        return plane.waiting > 0 and flow.finish_s > plane.now_s

    def push(self, flow: Flow[T], item: T, *, first: bool = False) -> None:
        """Let work wait; ``first`` for the rest of work that has begun."""
        if first:
            flow.queue.appendleft(item)
        else:
            flow.queue.append(item)
        self.root.waiting += 1
        for node, parent in flow.path:
            node.waiting += 1
            if not node.is_listed:
                node.is_listed = True
                start_s = max(node.finish_s, parent.now_s)
                heappush(parent.children, (start_s, next(self._numbers), node))

    def pop(self) -> tuple[Flow[T], T] | None:
        """The work to do next, charged with the estimate of its flow."""
        if not self.root.waiting:
            return None
        node = self.root
        while not isinstance(node, Flow):
            start_s, child = _first_child(node, self._numbers)
            node.now_s = max(node.now_s, start_s)
            node = child
        flow: Flow[T] = node
        item = flow.queue.popleft()
        self.charge(flow, flow.estimate_s)
        self.root.waiting -= 1
        for node, parent in flow.path:
            node.waiting -= 1
            if node.waiting:
                heapreplace(parent.children, (node.finish_s, next(self._numbers), node))
            else:
                heappop(parent.children)
                node.is_listed = False
        return flow, item

    def charge(self, flow: Flow[T], cost_s: float) -> None:
        """The flow has used, or will use, that much time."""
        for node, parent in flow.path:
            start_s, now_s = node.finish_s, parent.now_s
            if start_s < now_s:
                start_s = now_s
            elif start_s > now_s and not parent.children:
                parent.now_s = start_s  # nothing waits: this is the work in service
            node.finish_s = start_s + cost_s * node.per_weight

    def settle(self, flow: Flow[T], estimate_s: float, cost_s: float) -> None:
        """Replace the estimate that ``pop`` charged (0 for work that did not wait)."""
        if cost_s != estimate_s:
            self.charge(flow, cost_s - estimate_s)
        known_s = flow.estimate_s
        if cost_s > known_s:
            flow.estimate_s = cost_s
        else:
            flow.estimate_s = known_s + (cost_s - known_s) * _ESTIMATE_DECAY

    def pop_newest(self, level: PriorityLevel) -> tuple[Flow[T], T] | None:
        """Take back the work that came last in the longest queue of a level, without charge: the
        one to reject when the level is full."""
        planes = [plane for key, plane in self._planes.items() if key[0] is level]
        longest = max(planes, key=lambda plane: plane.waiting, default=None)
        if longest is None or not longest.waiting:
            return None
        flows = (flow for flow in self._flows.values() if flow.parent is longest)
        flow = max(flows, key=lambda flow: flow.waiting)
        item = flow.queue.pop()
        self.root.waiting -= 1
        for node, parent in flow.path:
            node.waiting -= 1
            if not node.waiting:
                node.is_listed = False
                parent.children = [entry for entry in parent.children if entry[2] is not node]
                parent.children.sort()
        return flow, item

    def flows(self) -> Iterator[Flow[T]]:
        return iter(self._flows.values())

    def _plane(self, level: PriorityLevel, plane: str) -> _Share:
        key = (level, plane)
        found = self._planes.get(key)
        if found is None:
            of_level = self._levels.get(level)
            if of_level is None:
                of_level = self._levels[level] = _Share(self.root, level.weight)
            found = self._planes[key] = _Share(of_level)
        return found

    def _drop_idle(self) -> None:
        """Forget flows without waiting work; they lose the memory of at most their last turn."""
        self._flows = {key: flow for key, flow in self._flows.items() if flow.waiting}
        kept = {id(flow.parent) for flow in self._flows.values()}
        self._planes = {key: plane for key, plane in self._planes.items() if id(plane) in kept}
        self._flows_max = max(FLOWS_MAX, 2 * len(self._flows))


def _first_child(node: _Share, numbers: Iterator[int]) -> tuple[float, _Share]:
    """The child whose work can start earliest. Charges made since a child was listed only move it
    back, so it is enough to correct the entry at the top."""
    children = node.children
    while True:
        start_s, _, child = children[0]
        if child.finish_s <= start_s:
            return start_s, child
        heapreplace(children, (child.finish_s, next(numbers), child))
