"""The contract every environment keeps: ``check_text_env``, for ours and for yours."""

from agent_envs.contract.assertions import ContractError
from agent_envs.contract.check import check_text_env

__all__ = ["ContractError", "check_text_env"]
