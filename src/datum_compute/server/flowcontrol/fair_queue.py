"""The order in which waiting work is served: start-time fair queueing over a tree of shares.

The tree has three stages: priority levels by weight, their planes, and the users of a plane. Every
node has a finish time in the virtual time of its parent. The finish time grows by the cost of the
work of the node, divided by its weight. Its start time is the later of its finish time and the
virtual time of its parent. The queue serves the node with the earliest start time next. So a node
that was idle is served before nodes that have used more, but gets no credit for its idle time.

When no work waits, a busy period ends. In the next one all nodes start equal: what they used before
delayed no other node. The virtual times then continue from the latest finish time.

The cost of work is measured only when it ends. ``pop`` charges an estimate, the highest recent
cost of the flow, and ``settle`` replaces the estimate with the measured cost.

This is a pure data structure: no clock, no event loop.

Priority levels follow API Priority and Fairness of kube-apiserver: every request belongs to one
level, and a level that uses less than its share of the time is served at once. The level depends on
the user who sent the request, not on the user it impersonates: otherwise impersonation would grant
a higher level.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

from datum_compute.server.access.authentication import MASTERS, User, is_platform_user

# Estimated cost of a request of a new flow: about one write.
FIRST_ESTIMATE_S = 0.0003
_ESTIMATE_DECAY = 0.1
# With more flows than this, idle flows are dropped.
FLOWS_MAX = 4096
_NOT_IN_HEAP = -1

T = TypeVar("T")


# --- Priority levels


_LEASES = "leases"


@dataclass(frozen=True, slots=True, eq=False)
class PriorityLevel:
    """``weight`` is the share of the time while every level has waiting requests.

    Requests of an exempt level never wait and are never rejected.
    """

    name: str
    weight: float = 1.0
    exempt: bool = False
    # Controllers and cells run a bounded number of requests at once, so the limits of one user do
    # not apply to them. Their watches are charged but do not wait.
    system: bool = False


EXEMPT = PriorityLevel("exempt", exempt=True)
LEADER_ELECTION = PriorityLevel("leader-election", weight=30, system=True)
SYSTEM = PriorityLevel("system", weight=60, system=True)
USERS = PriorityLevel("users", weight=30)
ANONYMOUS = PriorityLevel("anonymous", weight=1)
LEVELS = (EXEMPT, LEADER_ELECTION, SYSTEM, USERS, ANONYMOUS)


def level_of(user: User | None, resource: str = "") -> PriorityLevel:
    """Return the level of a request by its sender and resource. ``user`` is None without valid
    credentials."""
    if user is None:
        return ANONYMOUS
    if MASTERS in user.groups:
        return EXEMPT
    if is_platform_user(user):
        return LEADER_ELECTION if resource == _LEASES else SYSTEM
    return USERS


# --- The tree of shares


class _Share:
    """A node of the tree: the time it has used, and the heap of its children with waiting work.

    Heap entries are numbered. Only the entry with the number ``entry`` of the child is valid: a
    corrected child gets another entry, and the former one is dropped when it reaches the top.
    """

    __slots__ = (
        "children",
        "entry",
        "finish_s",
        "inverse_weight",
        "latest_s",
        "parent",
        "period",
        "virtual_s",
        "waiting",
    )

    def __init__(self, parent: _Share | None, weight: float = 1.0) -> None:
        self.parent = parent
        self.inverse_weight = 1.0 / weight
        self.finish_s = 0.0  # in the virtual time of the parent
        self.virtual_s = 0.0  # current virtual time, in which its children are ordered
        self.latest_s = 0.0  # latest finish time of its children
        self.period = 0  # busy period to which ``virtual_s`` belongs
        self.waiting = 0  # number of waiting items in this subtree
        self.entry = _NOT_IN_HEAP  # number of its entry in ``children`` of the parent
        self.children: list[tuple[float, int, _Share]] = []  # heap by start time

    def waiting_children(self) -> Iterator[_Share]:
        return (child for _, number, child in self.children if child.entry == number)


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
        self.requests = self.size_bytes = 0  # waiting requests and their bodies, set by the caller
        assert parent.parent is not None
        # The nodes that are charged for its work, each with its parent.
        level_share = parent.parent
        assert level_share.parent is not None
        self.path = ((self, parent), (parent, level_share), (level_share, level_share.parent))


class FairQueue(Generic[T]):
    def __init__(self) -> None:
        self.root = _Share(None)
        self._levels: dict[PriorityLevel, _Share] = {}
        self._planes: dict[tuple[PriorityLevel, str], _Share] = {}
        self._flows: dict[tuple[PriorityLevel, str, str], Flow[T]] = {}
        self._flows_max = FLOWS_MAX
        self._numbers = count()
        self._period = 0  # number of the current busy period

    def __len__(self) -> int:
        """Return the number of waiting items."""
        return self.root.waiting

    def count_flows(self) -> int:
        return len(self._flows)

    def flow(self, level: PriorityLevel, plane: str, user: str) -> Flow[T]:
        """Return the flow of a user on a plane. A new flow starts at the current virtual time."""
        key = (level, plane, user)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= self._flows_max:
                self._drop_idle()
            flow = self._flows[key] = Flow(self._plane(level, plane), level, plane, user)
        return flow

    def is_over_share(self, flow: Flow[T]) -> bool:
        """Return True if the plane has used more than its share of the level, or the flow more than
        its share of the plane."""
        plane = flow.parent
        assert plane is not None
        level = plane.parent
        assert level is not None
        self._join_period(level)
        self._join_period(plane)
        if plane.finish_s > level.virtual_s:
            return True
        return plane.waiting > 0 and flow.finish_s > plane.virtual_s

    def start_busy_period(self) -> None:
        """Treat all flows as equal from now on. Call this while no work waits."""
        self._period += 1

    def _join_period(self, parent: _Share) -> None:
        """Move the virtual time of a node to the start of the current busy period."""
        if parent.period != self._period:
            parent.period = self._period
            parent.virtual_s = max(parent.virtual_s, parent.latest_s)

    def push(self, flow: Flow[T], item: T, *, first: bool = False) -> None:
        """Add waiting work. ``first`` puts it before other work of the flow."""
        if first:
            flow.queue.appendleft(item)
        else:
            flow.queue.append(item)
        self.root.waiting += 1
        for node, parent in flow.path:
            node.waiting += 1
            if node.entry == _NOT_IN_HEAP:
                self._enter(node, parent)

    def pop(self) -> tuple[Flow[T], T] | None:
        """Remove and return the next work, and charge the estimate of its flow."""
        if not self.root.waiting:
            return None
        node = self.root
        while not isinstance(node, Flow):
            start_s, child = _first_child(node, self._numbers)
            node.virtual_s = max(node.virtual_s, start_s)
            node = child
        flow: Flow[T] = node
        item = flow.queue.popleft()
        self.charge(flow, flow.estimate_s)
        self.root.waiting -= 1
        for node, parent in flow.path:
            node.waiting -= 1
            if node.waiting:
                node.entry = next(self._numbers)
                heapreplace(parent.children, (node.finish_s, node.entry, node))
            else:
                heappop(parent.children)
                node.entry = _NOT_IN_HEAP
        return flow, item

    def charge(self, flow: Flow[T], cost_s: float) -> None:
        """Charge time to the flow. A negative cost corrects an earlier charge."""
        for node, parent in flow.path:
            self._join_period(parent)
            start_s, virtual_s = node.finish_s, parent.virtual_s
            if start_s < virtual_s:
                start_s = virtual_s
            elif start_s > virtual_s and not parent.waiting:
                parent.virtual_s = start_s  # nothing waits: this is the work in service
            node.finish_s = finish_s = start_s + cost_s * node.inverse_weight
            if finish_s > parent.latest_s:
                parent.latest_s = finish_s
            if cost_s < 0.0 and node.entry != _NOT_IN_HEAP:
                self._enter(node, parent)  # earlier than its present entry

    def settle(self, flow: Flow[T], estimate_s: float, cost_s: float) -> None:
        """Replace the estimate that ``pop`` charged (0 for work that did not wait)."""
        if cost_s != estimate_s:
            self.charge(flow, cost_s - estimate_s)
        estimate_before_s = flow.estimate_s
        if cost_s > estimate_before_s:
            flow.estimate_s = cost_s
        else:
            flow.estimate_s = estimate_before_s + (cost_s - estimate_before_s) * _ESTIMATE_DECAY

    def pop_newest(
        self, level: PriorityLevel, is_request: Callable[[T], bool]
    ) -> tuple[Flow[T], T] | None:
        """Remove the newest request of the flow with the most requests on the busiest plane.

        It is not charged: the caller rejects it because the level is full. Work for which
        ``is_request`` returns False has begun and stays.
        """
        share = self._levels.get(level)
        by_plane: dict[_Share, list[Flow[T]]] = {}
        for plane in share.waiting_children() if share is not None else ():
            by_plane[plane] = [flow for flow in plane.waiting_children() if isinstance(flow, Flow)]
        busiest = max(
            by_plane.values(), key=lambda flows: sum(f.requests for f in flows), default=[]
        )
        flow = max(busiest, key=lambda flow: flow.requests, default=None)
        if flow is None or not flow.requests:
            return None
        place = next(n for n in reversed(range(len(flow.queue))) if is_request(flow.queue[n]))
        item = flow.queue[place]
        del flow.queue[place]
        self.root.waiting -= 1
        for node, _ in flow.path:
            node.waiting -= 1
            if not node.waiting:
                node.entry = _NOT_IN_HEAP
        return flow, item

    def _enter(self, node: _Share, parent: _Share) -> None:
        """Put the node into the heap of its parent, at its present start time."""
        self._join_period(parent)
        node.entry = next(self._numbers)
        start_s = max(node.finish_s, parent.virtual_s)
        heappush(parent.children, (start_s, node.entry, node))

    def _plane(self, level: PriorityLevel, plane: str) -> _Share:
        key = (level, plane)
        found = self._planes.get(key)
        if found is None:
            level_share = self._levels.get(level)
            if level_share is None:
                level_share = self._levels[level] = _Share(self.root, level.weight)
            found = self._planes[key] = _Share(level_share)
        return found

    def _drop_idle(self) -> None:
        """Drop flows without waiting work. They lose their finish times."""
        self._flows = {key: flow for key, flow in self._flows.items() if flow.waiting}
        kept = {id(flow.parent) for flow in self._flows.values()}
        self._planes = {key: plane for key, plane in self._planes.items() if id(plane) in kept}
        self._flows_max = max(FLOWS_MAX, 2 * len(self._flows))


def _first_child(node: _Share, numbers: Iterator[int]) -> tuple[float, _Share]:
    """Return the child with the earliest start time, and that time. Drop entries that are no longer
    valid, and correct the top entry if its child was charged meanwhile."""
    children = node.children
    while True:
        start_s, number, child = children[0]
        if child.entry != number:
            heappop(children)
        elif child.finish_s <= start_s:
            return start_s, child
        else:
            child.entry = next(numbers)
            heapreplace(children, (child.finish_s, child.entry, child))
