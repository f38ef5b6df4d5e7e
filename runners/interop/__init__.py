"""Environments for other people's agents and trainers: MCP, TRL, verifiers, OpenEnv.

A file each, which alone imports the library of its name; what they play by is `episodes`.
"""
