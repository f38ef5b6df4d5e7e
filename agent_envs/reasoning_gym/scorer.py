"""The function that `agent_envs.isolation.grader` runs in a killable process: a data set's scorer.

Invariant: the entry is made again here, and is the one that was asked about; of what a model wrote there is only the
answer. Some of these scorers evaluate it. Never imported by what trains.
"""

from agent_envs.reasoning_gym.entries import BLOCK, digest, entry, opened


def score(dataset: str, seed: int, number: int, question: str, answer: str) -> float:
    """What the data set's own scorer gives for an answer. Raises ValueError when the entry has another question.

    `question` is the `digest` of the question that was asked.
    """
    result = entry(dataset, seed, number)
    if digest(result["question"]) != question:
        raise ValueError(f"entry {number} of {dataset} is another one in this process")
    return float(opened(dataset, seed, number // BLOCK).score_answer(answer, result))
