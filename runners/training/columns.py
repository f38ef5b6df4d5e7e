"""Names and formats of an update's numbers, wherever they are shown."""

from collections.abc import Mapping, Sequence

from runners.training.phases import PHASES

Columns = Mapping[str, Sequence[tuple[str, str, str]]]
"""Group → (name, label, format) of each number."""
COLUMNS: Columns = {
    "episodes": (
        ("success", "success", "{:.3f}"),
        ("reward", "reward", "{:.3f}"),
        ("turns", "turns", "{:.2f}"),
        ("tool_errors", "tool error rate", "{:.3f}"),
        ("invalid", "invalid actions", "{:.3f}"),
        ("truncated", "truncated", "{:.3f}"),
        ("faults", "environment faults", "{:.0f}"),
        ("cut", "episodes cut", "{:.0f}"),
        ("continued", "episodes continued", "{:.0f}"),
    ),
    "policy": (
        ("entropy", "entropy (nats)", "{:.3f}"),
        ("kl", "KL to start", "{:.4f}"),
        ("approx_kl", "KL of an update", "{:.4f}"),
        ("clip_fraction", "clip fraction", "{:.3f}"),
        ("zero_variance", "zero-variance groups", "{:.3f}"),
        ("explained_variance", "explained variance", "{:.3f}"),
        ("mismatch_max_abs", "max |log p rollout - trainer|", "{:.1e}"),
        ("lag", "age of the policy that played (updates)", "{:.0f}"),
        ("skipped_steps", "skipped steps", "{:.0f}"),
    ),
    "cost": (
        ("packed_share", "packed / raw tokens", "{:.3f}"),
        ("sampled_tokens_per_s", "sampled tokens/s", "{:.0f}"),
        ("continuations", "continuations", "{:.0f}"),
        PHASES[0],
        ("seconds_env", "of it waiting for envs s", "{:.2f}"),
        *PHASES[1:],
    ),
}
OF_ENV = ("success", "reward", "turns", "invalid")
"""Numbers of all episodes that are also shown for each of several environments; ``ENV/NAME`` are their names."""


def columns_of(envs: Sequence[str]) -> Columns:
    """All groups, and one more for each of several environments."""
    own = [column for column in COLUMNS["episodes"] if column[0] in OF_ENV]
    return {**COLUMNS, **{env: [(f"{env}/{key}", f"{env} {label}", form) for key, label, form in own] for env in envs}}
