"""A ticket that is being worked on: the company's data, the customer's telephone, and what was called.

Invariant: a case is its ticket and the calls that were made, so that it is pickled as these; the same calls give the
same answers.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

from agent_envs.adapters.tau2.package import module, ticket, world

Call = tuple[str, Mapping[str, Any]]
"""(name of a tool, arguments)"""


class Case:
    """Raises SettingsError where τ²'s package is missing."""

    def __init__(self, name: str, calls: Sequence[Call] = ()) -> None:
        self.name = name
        self.ticket = ticket(name)
        self.calls: tuple[Call, ...] = ()
        self.world = world()
        self.world.set_state(None, self.ticket.initial_state.initialization_actions, [])
        for tool, arguments in calls:
            self.call(tool, arguments)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """What the tool answers; an error is an answer, too."""
        known = {bill.bill_id for bill in self.bills}
        asked = module("tau2.data_model.message").ToolCall(name=tool, arguments=dict(arguments))
        answer = str(self.world.get_response(asked).content)
        self.calls += ((tool, dict(arguments)),)
        for bill in self.bills:
            if bill.bill_id not in known:
                answer = answer.replace(bill.bill_id, self._renamed(bill, f"B{9000 + len(self.bills)}"))
        return answer

    def _renamed(self, bill: Any, name: str) -> str:
        """Gives a new bill another id: τ² draws one at random, which no seed decides."""
        for customer in self.world.tools.db.customers:
            customer.bill_ids = [name if one == bill.bill_id else one for one in customer.bill_ids]
        bill.bill_id = name
        return name

    @property
    def bills(self) -> Sequence[Any]:
        bills: Sequence[Any] = self.world.tools.db.bills
        return bills

    @property
    def line(self) -> Any:
        """The line that the ticket is about: that of the telephone."""
        return self.world.tools._get_line_by_phone(self.world.user_tools.surroundings.phone_number)

    @property
    def ours(self) -> dict[str, str]:
        """The customer and the line, as arguments of tools."""
        customer = self.world.tools.get_customer_by_phone(self.line.phone_number)
        return {"customer_id": customer.customer_id, "line_id": self.line.line_id}

    def met(self) -> list[bool]:
        """Whether each thing holds that τ² rewards: its assertions and, where it asks for them, its actions."""
        wanted = self.ticket.evaluation_criteria
        basis = {str(one.value) for one in wanted.reward_basis}
        result = [self.world.run_env_assertion(one, raise_assertion_error=False) for one in wanted.env_assertions or ()]
        if "ACTION" in basis:
            result += [any(self._compared(one, *call) for call in self.calls) for one in wanted.actions or ()]
        return result

    @staticmethod
    def _compared(action: Any, tool: str, arguments: Mapping[str, Any]) -> bool:
        made = module("tau2.data_model.message").ToolCall(name=tool, arguments=dict(arguments))
        return bool(action.compare_with_tool_call(made))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = copy.copy(self)
        twin.world = copy.deepcopy(self.world)
        return twin

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.calls)
