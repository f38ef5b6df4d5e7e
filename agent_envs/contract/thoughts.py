"""The contract of an environment whose turns are thought factors."""

from agent_envs.actions import BLANK
from agent_envs.contract.assertions import Make, idle, need, sample, step


def check_thoughts(make: Make, tasks: int, seed: int) -> None:
    """Where turns are thought factors: reset says so, a thought is answered with nothing, a text without a blank line
    ends the message. Elsewhere reset says nothing of the kind.
    """
    env = make()
    _, info = env.reset(seed=seed)
    if not env.openings:
        need("thoughts" not in info, env, "reset must not tell of thoughts where turns are no thought factors")
        return
    need(set(env.openings) == {"en", "zh"} and all(env.openings.values()), env, "openings need words in en and zh")
    wanted = {"opening": env.openings[env.task.language], "turns": env.max_turns}
    need(info.get("thoughts") == wanted, env, f"reset must tell {wanted} under 'thoughts'")
    for task in sample(env, tasks):
        env.reset(seed=seed, options={"task": task})
        over = not env.has_expert
        while not over:
            last = env.turn + 1 == env.max_turns
            turn = env.expert()
            text, _, terminated, truncated, _ = step(env, turn)
            over = terminated or truncated
            need(text == "", env, f"a thought must be answered with nothing, not with {text[:40]!r}")
            need(last or over == (BLANK not in turn), env, f"the expert's turn {turn[-40:]!r} ends wrongly")
        if env.max_turns > 1:
            env.reset(seed=seed, options={"task": task})
            need(not any(step(env, idle(env))[2:4]), env, "a thought must not end the episode")
            need(step(env, "no blank line")[2], env, "a turn without a blank line must end the episode")
