"""What the agent sees, line by line."""

from agent_envs.adapters.household.catalogue import STATES
from agent_envs.adapters.household.goal import changed_things, told
from agent_envs.adapters.household.house import House, State, accessible


def view(house: House, state: State, *, begun: bool) -> list[str]:
    """The errand at the beginning; then the place with what is there, and what is carried."""
    lines = [] if begun else [f"errand: {told(house.errand)}"]
    if state.at is not None:
        name, there = house.places[state.at].name, state.there(state.at)
        if accessible(house, state, state.at):
            lines.append(f"{name}: {', '.join(described(house, state, thing) for thing in there) or 'nothing'}")
        else:
            lines.append(f"{name}: closed")
    if state.held is not None:
        lines.append(f"carrying: {described(house, state, state.held)}")
    return lines


def described(house: House, state: State, thing: int) -> str:
    """A thing with all that was done to it: `apple 1 (clean, hot)`."""
    done = [word for kind, word in STATES.items() if thing in changed_things(state, kind)]
    done += [word for word, things in (("sliced", state.sliced), ("on", state.on)) if thing in things]
    return f"{house.things[thing].name} ({', '.join(done)})" if done else house.things[thing].name
