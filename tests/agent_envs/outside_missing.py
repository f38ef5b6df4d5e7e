"""A module that lacks its optional package."""

from agent_envs.core import SettingsError

raise SettingsError("the package nothing is missing: pip install 'turnwise[nothing]'")
